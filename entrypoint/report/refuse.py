"""The end of a start that the configuration does not allow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from entrypoint.arguments import Request
from entrypoint.checks.trainer_settings import Checked, check_trainer
from entrypoint.cluster.spec import ALONE
from entrypoint.errors import ConfigurationError, render
from entrypoint.log import Log
from entrypoint.packages.requirements import find_requirements, notes_on
from entrypoint.settings.environ import Environ
from entrypoint.settings.options import JSON, read_log_format
from entrypoint.supervision.failure_file import write_failure


def refuse(error: ConfigurationError, request: Request, variables: Environ, directory: str) -> int:
    """Print our problems, and the trainer's if it was to run, in one message."""
    checked = _check(request, variables, directory) if request.is_trainer else Checked()
    message = render((*error.problems, *checked.problems), checked.notes)
    log = Log(str(ALONE), as_json=_wants_json(variables))
    log.message(message)
    write_failure(variables.get("FAILURE_FILE"), log, message)
    return error.exit_code


def _wants_json(variables: Environ) -> bool:
    """Whether the log is for machines, as far as LOG_FORMAT can be read."""
    try:
        return read_log_format(variables) == JSON
    except ConfigurationError:
        return False


def _check(request: Request, variables: Environ, directory: str) -> Checked:
    """Ask the trainer, without a TF_CONFIG: there is none that could be trusted."""
    environment = {name: value.text for name, value in variables.values.items()}
    environment.pop("TF_CONFIG", None)
    requirements = None
    with suppress(ConfigurationError):  # it is among the problems already
        requirements = find_requirements(variables, directory)
    if requirements:
        environment = requirements.added_to(environment)
    checked = check_trainer(request.command, environment)
    return replace(checked, notes=(*checked.notes, *notes_on(requirements)))

"""Reports a wrong configuration, and ends the start."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from entrypoint.arguments import Request
from entrypoint.checks.trainer_settings import Checked, check_trainer
from entrypoint.cluster.spec import ALONE
from entrypoint.errors import EXIT_PEER_LOST, ConfigurationError, render
from entrypoint.log import Log
from entrypoint.packages.requirements import find_requirements, notes_on
from entrypoint.settings.options import JSON, Options
from entrypoint.supervision.failure_file import write_failure


def refuse(
    error: ConfigurationError,
    request: Request,
    options: Options,
    environment: Mapping[str, str],
    directory: Path,
) -> int:
    """Print the problems of the entrypoint and the trainer in one message; return the exit code.

    The trainer checks its settings without a TF_CONFIG, because none can be trusted.
    """
    checked = _check(request, options, environment, directory) if request.is_trainer else Checked()
    found = ConfigurationError((*error.problems, *checked.problems))
    message = render(found.problems, checked.notes)
    log = Log(str(ALONE), as_json=options.log_format == JSON)
    log.message(message)
    write_failure(options.failure_file, log, message)
    return options.peer_lost_exit_code if found.exit_code == EXIT_PEER_LOST else found.exit_code


def _check(
    request: Request, options: Options, environment: Mapping[str, str], directory: Path
) -> Checked:
    requirements = None
    with suppress(ConfigurationError):  # already among the problems
        requirements = find_requirements(options.requirements_file, directory)
    if requirements:
        environment = requirements.added_to(environment)
    checked = check_trainer(request.command, environment)
    return replace(checked, notes=(*checked.notes, *notes_on(requirements)))

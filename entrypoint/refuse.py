"""The end of a start that the configuration does not allow."""

from __future__ import annotations

from entrypoint.arguments import Request
from entrypoint.environ import Environ
from entrypoint.errors import ConfigurationError, render, say
from entrypoint.trainer_check import Checked, check_trainer


def refuse(error: ConfigurationError, request: Request, variables: Environ) -> int:
    """Print our problems, and the trainer's if it was to run, in one message."""
    checked = _check(request, variables) if request.is_trainer else Checked()
    say(render((*error.problems, *checked.problems), checked.notes))
    return error.exit_code


def _check(request: Request, variables: Environ) -> Checked:
    """Ask the trainer, without a TF_CONFIG: there is none that could be trusted."""
    environment = {name: value.text for name, value in variables.values.items()}
    environment.pop("TF_CONFIG", None)
    return check_trainer(request.command, environment)

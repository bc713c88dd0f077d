"""`explain`: shows what a start would do, and runs nothing but the trainer's check."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.arguments import Request
from entrypoint.checks.trainer_settings import Checked, check_trainer
from entrypoint.errors import (
    EXIT_CONFIGURATION,
    EXIT_NOT_WRITTEN,
    escaped,
    put_out,
    render,
    say,
)
from entrypoint.packages.requirements import Requirements, notes_on
from entrypoint.settings.environ import Environ
from entrypoint.sources.alone import alone_warning
from entrypoint.sources.resolve import Answer
from entrypoint.start_messages.explanation import as_json, as_text


def explain(
    request: Request,
    variables: Environ,
    answer: Answer,
    environment: Mapping[str, str],
    requirements: Requirements | None,
) -> int:
    """Print the explanation, or the refusal that a start would print; return the exit code."""
    checked = check_trainer(request.command, environment) if request.is_trainer else Checked()
    if checked.problems:
        say(render(checked.problems, notes_on(requirements)))
        return EXIT_CONFIGURATION
    alone = "" if answer.resolution else alone_warning(variables)
    for note in (*checked.notes, checked.done, alone):
        if note:
            say(f"cluster-trainer: {escaped(note)}")
    write = as_json if request.as_json else as_text
    text = write(variables, answer, request.command, requirements)
    return 0 if put_out(f"{text}\n", "the explanation") else EXIT_NOT_WRITTEN

"""`explain`: shows what a start would do, and runs nothing but the trainer's check."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.arguments import Request
from entrypoint.checks.trainer_settings import Checked, check_trainer
from entrypoint.errors import EXIT_CONFIGURATION, STDOUT, escaped, render, say, write_all
from entrypoint.packages.requirements import Requirements, notes_on
from entrypoint.report.explanation import as_json, as_text
from entrypoint.settings.environ import Environ
from entrypoint.sources.resolve import Answer


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
    for note in (*checked.notes, checked.done):
        if note:
            say(f"cluster-trainer: {escaped(note)}")
    write = as_json if request.as_json else as_text
    return _print(write(variables, answer, request.command, requirements))


def _print(text: str) -> int:
    """Write to stdout. A closed pipe or a full disk causes no traceback.

    Bypasses Python's buffer, which would be written again at exit.
    """
    try:
        write_all(STDOUT, f"{text}\n".encode(errors="backslashreplace"))
    except OSError as error:
        say(f"cluster-trainer: cannot write the explanation: {error.strerror}.")
        return 1
    return 0

"""The table of a self-test: a row for each part, as text and as JSON; and the exit code."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cluster_trainer.problems import ExitCode

WIDTH = 100


class State(StrEnum):
    """The result of a part."""

    HELD = "held"
    FAILED = "failed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One part of the test.

    Attributes:
        name: the name of the part.
        state: its result.
        found: the result in words, or the reason why it could not run.
        advice: advice for the user if it failed.
        seconds: the time that it took; None if nothing was run.
        facts: the result for programs.
        log: the last lines of a failed part's output.
    """

    name: str
    state: State
    found: str
    advice: str = ""
    seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""


def exit_code(rows: Sequence[Row]) -> ExitCode:
    """Return 1 if a part has failed, otherwise 0."""
    return ExitCode.CRASHED if _of(rows, State.FAILED) else ExitCode.DONE


def as_text(title: str, rows: Sequence[Row], conclusion: Sequence[str]) -> str:
    """Return the table for a person, with the details of failed parts below it."""
    widths = [max(len(cells[column]) for cells in map(_cells, rows)) for column in range(3)]
    lines = [_line(row, widths) for row in rows]
    failed = [_details(row) for row in rows if row.state == State.FAILED]
    counts = ", ".join(f"{len(_of(rows, state))} {state}" for state in State)
    sentences = [textwrap.fill(one, WIDTH) for one in conclusion]
    return "\n\n".join([textwrap.fill(title, WIDTH), "\n".join(lines), *failed, *sentences, counts])


def as_json(title: str, rows: Sequence[Row], conclusion: Sequence[str]) -> str:
    """Return the table as one JSON object."""
    parts = [
        {
            "part": row.name,
            "state": str(row.state),
            "found": row.found,
            "advice": row.advice if row.state == State.FAILED else "",
            "seconds": row.seconds,
            "facts": dict(row.facts),
            "log": row.log,
        }
        for row in rows
    ]
    document = {
        "title": title,
        "parts": parts,
        "conclusion": [*conclusion],
        "exit_code": int(exit_code(rows)),
    }
    return json.dumps(document, indent=2)


def _of(rows: Sequence[Row], state: State) -> list[Row]:
    return [row for row in rows if row.state == state]


def _cells(row: Row) -> tuple[str, str, str]:
    return row.name, str(row.state), "" if row.seconds is None else f"{row.seconds:.0f} s"


def _line(row: Row, widths: Sequence[int]) -> str:
    """Return a row's cells, then the result, wrapped in its own column."""
    name, state, seconds = _cells(row)
    head = f"{name:<{widths[0]}}  {state:<{widths[1]}}  {seconds:>{widths[2]}}  "
    width = max(WIDTH, 2 * len(head))
    return textwrap.fill(row.found, width, initial_indent=head, subsequent_indent=" " * len(head))


def _details(row: Row) -> str:
    """Return the advice for a failed part, and the last lines of its output."""
    advice = textwrap.fill(f"{row.name}: {row.advice}", WIDTH) if row.advice else row.name
    return f"{advice}\n{textwrap.indent(row.log, '  | ')}".rstrip()

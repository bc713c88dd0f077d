"""One part of the self-test: the command that is run, and the judgement of what it has found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster_trainer.selftest.running import Bench, Outcome
from cluster_trainer.selftest.table import Row, State

Facts = Mapping[str, Any]
REPORT = "Please open an issue with this table and the log."
ALONE = {"CLUSTER_SOURCE": "none"}


class WrongError(Exception):
    """A program has ended well, and what it found is wrong; the text says what."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A program that is run, and what it must find.

    Attributes:
        name: of its row.
        command: what is run under the entrypoint.
        found: returns what was found, in words; raises WrongError.
        advice: what to do if it fails.
        settings: its variables.
        meets: whether all machines run it together.
        limit_seconds: the limit, if it is not that of the bench.
        shows: whether the user sees what it prints.
        why_not: why it cannot be tried here; "": it can.
        needs: parts without which it is not tried.
    """

    name: str
    command: Sequence[str]
    found: Callable[[Facts], str]
    advice: str = REPORT
    settings: Mapping[str, str] = field(default_factory=dict)
    meets: bool = False
    limit_seconds: float | None = None
    shows: bool = False
    why_not: str = ""
    needs: Sequence[str] = ()


def run_part(bench: Bench, part: Part, before: Sequence[Row] = ()) -> Row:
    """Run a part, unless it cannot be tried; return its row.

    Args:
        bench: where it is run.
        part: the part.
        before: the rows of earlier parts.
    """
    held = {row.name for row in before if row.state == State.HELD}
    lacking = [name for name in part.needs if name not in held]
    why_not = part.why_not or (f"it needs the part `{lacking[0]}`" if lacking else "")
    if why_not:
        return Row(name=part.name, state=State.NOT_TRIED, found=why_not)
    limit = part.limit_seconds or (2 if part.meets else 1) * bench.limit_seconds
    wait = {"RENDEZVOUS_TIMEOUT": str(max(1, round(bench.limit_seconds)))}
    settings = {**(wait if part.meets else ALONE), **part.settings}
    outcome = bench.run(part.name, part.command, settings, limit, shows=part.shows)
    return judged(part, outcome, limit)


def judged(part: Part, outcome: Outcome, limit_seconds: float) -> Row:
    """Return the row of a part that was run."""
    try:
        found, state = _found(part, outcome, limit_seconds), State.HELD
    except WrongError as error:
        found, state = str(error), State.FAILED
    return Row(
        name=part.name,
        state=state,
        found=found,
        advice=part.advice,
        seconds=round(outcome.seconds, 1),
        facts=outcome.facts,
        log=outcome.log if state == State.FAILED else "",
    )


def _found(part: Part, outcome: Outcome, limit_seconds: float) -> str:
    if outcome.code is None:
        raise WrongError(f"it did not end within {limit_seconds:g} s (--limit)")
    if outcome.code:
        raise WrongError(outcome.reason or f"exit code {outcome.code}")
    try:
        return part.found(outcome.facts)
    except KeyError as error:
        raise WrongError(f"its result lacks {error}") from error

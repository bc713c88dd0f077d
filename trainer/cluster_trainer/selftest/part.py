"""One part of the self-test: its command, and the judgement of the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster_trainer.selftest.running import Bench, Outcome
from cluster_trainer.selftest.table import Row, State

Facts = Mapping[str, Any]
REPORT = "Please open an issue with this table and the log."
ALONE = {"CLUSTER_SOURCE": "none"}


class WrongError(Exception):
    """A program has ended with 0, but its result is wrong. The message describes it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A program, and the result that it must have.

    Attributes:
        name: the name of its row.
        command: the command that the entrypoint runs.
        found: describes the result in words; raises WrongError if it is wrong.
        advice: advice for the user if the part fails.
        settings: its variables.
        meets: whether all machines run it together.
        limit_seconds: its time limit; None: the bench's.
        shows: whether the user sees its output.
        why_not: the reason why it cannot run here; "" if it can.
        needs: the names of parts that must have passed before.
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
    """Run a part if it can run here; return its row.

    Args:
        bench: the place where it is run.
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

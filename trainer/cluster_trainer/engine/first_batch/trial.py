"""Tries the shares of the first batch without sums, so that no worker waits for a failed one.

A step that runs eagerly takes only one branch of a condition, and the replica's own share chooses
it. So the workers may compute different sums, or one worker may fail. Both would break a ring.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster_trainer.collectives import replicas
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine import compared_facts
from cluster_trainer.engine.first_batch.batch import WHAT, NotComparableError
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.replicas import step_context

UNKNOWN, FAILED, BRANCHES = "unknown", "failed", "branches"
"""Reasons not to compare: impossible, a step fails, or the replicas compute different sums."""


@dataclass(frozen=True)
class Uncompared:
    """The reason why the two ways are not compared.

    Attributes:
        kind: one of UNKNOWN, FAILED and BRANCHES.
        text: the reason.
    """

    kind: str
    text: str = ""

    @classmethod
    def after(cls, error: Exception) -> "Uncompared":
        """Return an error as a reason."""
        if isinstance(error, NotComparableError):
            return cls(UNKNOWN, str(error))
        return cls(FAILED, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def tried(
    compute: Callable[[], object], ways: Sequence[Way], workers: Workers
) -> Uncompared | None:
    """Compute the local replicas' shares without the other replicas.

    All workers call this, and get the same answer.

    Args:
        compute: runs the step on the local shares.
        ways: the local replicas' ways, which note the sums.
        workers: the workers that compare their results.

    Returns:
        the reason why the batch cannot be compared; None if there is none.
    """
    found: dict[str, str] = {}
    try:
        with replicas.alone(_note_sum):
            compute()
    except Exception as error:  # noqa: BLE001  a script's own step may fail eagerly
        mine = Uncompared.after(error)
        found[mine.kind] = mine.text
    found["sums"] = json.dumps(sorted({json.dumps(way.sums) for way in ways}))
    everyone = compared_facts.of_all(workers, found, WHAT) or [found]
    for kind in (UNKNOWN, FAILED):
        if texts := [one[kind] for one in everyone if kind in one]:
            return Uncompared(kind, texts[0])
    if len({sums for one in everyone for sums in json.loads(one["sums"])}) > 1:
        return Uncompared(BRANCHES)
    return None


def _note_sum(described: str) -> None:
    part = step_context.current()
    if part is not None and part.first_batch is not None:
        part.first_batch.sums.append(described)

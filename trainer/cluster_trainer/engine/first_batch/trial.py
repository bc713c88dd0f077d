"""Tries the shares of the first batch without sums, so that no worker waits for one that fails.

A step that runs eagerly takes one branch of a condition, and each replica decides by its own share.
So a step may compute other sums on each worker, or fail on one of them. A ring would end by that.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster_trainer.collectives import replicas
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine import facts
from cluster_trainer.engine.first_batch.batch import WHAT, NotComparableError
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.replicas import step_context

UNKNOWN, FAILED, BRANCHES = "unknown", "failed", "branches"
"""Why a batch is not compared: it cannot be, a step fails, or the replicas compute other sums."""


@dataclass(frozen=True)
class Uncompared:
    """Why the two ways are not compared.

    Attributes:
        kind: one of UNKNOWN, FAILED and BRANCHES.
        text: the reason.
    """

    kind: str
    text: str = ""

    @classmethod
    def after(cls, error: Exception) -> "Uncompared":
        """Return what an error means."""
        if isinstance(error, NotComparableError):
            return cls(UNKNOWN, str(error))
        return cls(FAILED, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def tried(
    compute: Callable[[], object], ways: Sequence[Way], workers: Workers
) -> Uncompared | None:
    """Compute the local replicas' shares alone; return why they cannot be compared.

    All workers call it, and get the same answer. None: they can be compared.

    Args:
        compute: runs the step on these shares.
        ways: of each, which note its sums.
        workers: this one and the others.
    """
    found: dict[str, str] = {}
    try:
        with replicas.alone(_note_sum):
            compute()
    except Exception as error:  # noqa: BLE001  a step of the script's own, which need not run eagerly
        mine = Uncompared.after(error)
        found[mine.kind] = mine.text
    found["sums"] = json.dumps(sorted({json.dumps(way.sums) for way in ways}))
    everyone = facts.of_all(workers, found, WHAT) or [found]
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

"""Stops a cluster before one of its machines is replaced."""

from __future__ import annotations

from dataclasses import dataclass

from local_cluster.messages import EXIT_ERROR, EndError, say
from machines.cluster_record import Kept
from machines.machine import Machine, at_once
from machines.workers import containers


@dataclass(frozen=True)
class Replacement:
    """A cluster that one machine leaves.

    Attributes:
        known: the cluster before the change.
        leaving: the machine that leaves, which may not answer.
    """

    known: Kept
    leaving: Machine

    def stop(self) -> None:
        """Stop the cluster at a checkpoint. The machine that leaves need not answer.

        Raises:
            EndError: another machine's worker cannot be stopped.
        """
        known, leaving = self.known, self.leaving
        say(f"{leaving.name} leaves; stopping the run at a checkpoint")
        found = at_once(containers.stop, known.containers)
        pairs = zip(known.containers, found)
        those = [one for one, text in pairs if text and one.machine != leaving]
        running = at_once(containers.is_running, those)
        for one, runs in zip(those, running):
            if runs is not False:
                raise EndError(
                    EXIT_ERROR,
                    found[one.machine.index],
                    "no machine was replaced, but workers were stopped. Repeat this command, or "
                    "`make resume`.",
                )

"""Stops a cluster before one of its machines is replaced."""

from __future__ import annotations

from dataclasses import dataclass

from local_cluster.messages import EXIT_ERROR, EndError, say
from machines.cluster_record import Kept
from machines.machine import Machine, at_once
from machines.workers import containers


@dataclass(frozen=True)
class Replacement:
    """A cluster that workers leave, with their machine.

    Attributes:
        known: the cluster before the change.
        leaving: the workers that leave; their machine may not answer.
    """

    known: Kept
    leaving: tuple[Machine, ...]

    def stop(self) -> None:
        """Stop the cluster at a checkpoint. The machine that leaves need not answer.

        Raises:
            EndError: another machine's worker cannot be stopped.
        """
        known, leaving = self.known, self.leaving
        names = ", ".join(f"{one.service} leaves {one.name}" for one in leaving)
        say(f"{names}; stopping the run at a checkpoint")
        found = at_once(containers.stop, known.containers)
        pairs = zip(known.containers, found)
        those = [one for one, text in pairs if text and one.machine not in leaving]
        running = at_once(containers.is_running, those)
        for one, runs in zip(those, running):
            if runs is not False:
                raise EndError(
                    EXIT_ERROR,
                    found[one.machine.index],
                    "no machine was replaced, but workers were stopped. Repeat this command, or "
                    "`make resume`.",
                )

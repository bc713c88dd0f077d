"""The earlier workers of a cluster that a start replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from machines.checks.facts import Facts
from machines.cluster_record import Kept
from machines.machine import container_of


@dataclass(frozen=True)
class Own:
    """The workers in the project's record, which a start removes.

    Attributes:
        ports: the port of each worker, by its machine and its container.
        may_run: whether they may run now; they are stopped before the start.
        start: the start that created them, which identifies them: others may have containers of
            the same name there, and HOSTS may name a machine differently now. "": an older version
            created them, and the machine and the name decide.
    """

    ports: Mapping[tuple[str, str], int]
    may_run: bool
    start: str = ""

    @classmethod
    def of(cls, known: Kept | None, *, may_run: bool) -> Own:
        """Return the workers of a cluster; None: there was no cluster."""
        if not known:
            return cls({}, may_run)
        ports = {
            (one.name, container_of(one, known.project)): int(one.host.port)
            for one in known.machines
        }
        return cls(ports, may_run, known.start)

    def on(self, facts: Facts) -> dict[str, int]:
        """Return the workers on a machine, with their ports."""
        of_start = facts.told.get("of_start", [])
        return {
            name: port
            for (place, name), port in self.ports.items()
            if (name in of_start if self.start else place == facts.machine.name)
        }

    def running(self, facts: Facts) -> dict[str, int]:
        """Return the running workers on a machine that are to be replaced, with their ports."""
        there = facts.told.get("there", []) if self.may_run else []
        return {name: port for name, port in self.on(facts).items() if name in there}


NONE = Own({}, may_run=False)

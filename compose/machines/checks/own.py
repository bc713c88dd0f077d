"""The workers of a cluster that another start replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from machines.checks.facts import Facts
from machines.kept import Kept
from machines.machine import container_of


@dataclass(frozen=True)
class Own:
    """The workers that the project's record names, which a start removes.

    Attributes:
        ports: of each, its port, by the machine and the container.
        may_run: whether they may run now, because they are stopped before the start.
        start: the start that made them, by which they are known where a machine is named
            differently; "": it is unknown.
    """

    ports: Mapping[tuple[str, str], int]
    may_run: bool
    start: str = ""

    @classmethod
    def of(cls, known: Kept | None, *, may_run: bool) -> Own:
        """Return those of a cluster; None: there was none."""
        if not known:
            return cls({}, may_run)
        ports = {
            (one.name, container_of(one, known.project)): int(one.host.port)
            for one in known.machines
        }
        return cls(ports, may_run, known.start)

    def on(self, facts: Facts) -> dict[str, int]:
        """Return those on a machine, with their ports."""
        of_start = facts.told.get("of_start", [])
        return {
            name: port
            for (place, name), port in self.ports.items()
            if place == facts.machine.name or name in of_start
        }

    def running(self, facts: Facts) -> dict[str, int]:
        """Return those that run on a machine until they are replaced, with their ports."""
        there = facts.told.get("there", []) if self.may_run else []
        return {name: port for name, port in self.on(facts).items() if name in there}


NONE = Own({}, may_run=False)

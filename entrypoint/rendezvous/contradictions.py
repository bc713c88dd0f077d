"""What the workers do not agree on, as far as this one knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from entrypoint.errors import Problem, listed
from entrypoint.rendezvous.facts import Card


@dataclass(frozen=True)
class Difference:
    """What is wrong with a worker, in the parts of a `Problem`, but for the worker's name."""

    what: str
    received: str
    accepted: str
    advice: str


class Contradictions:
    """Collects differences; workers with the same one share a problem."""

    def __init__(self) -> None:
        self._found: dict[Difference, dict[str, str]] = {}
        self._told: dict[Problem, None] = {}

    def __bool__(self) -> bool:
        return bool(self._found or self._told)

    def add(self, card: Card, where: str, difference: Difference) -> None:
        """Note what is wrong with the worker of the card, which was met at that address."""
        workers = self._found.setdefault(difference, {})
        workers.setdefault(card.boot, f"{card.task} at {where}")

    def take(self, problems: Iterable[Problem]) -> None:
        """Note what another worker found."""
        self._told |= dict.fromkeys(problems)

    def problems(self) -> tuple[Problem, ...]:
        """Return all problems, each once."""
        found = [
            Problem(
                f"{difference.what} of {listed(list(workers.values()))}",
                difference.received,
                difference.accepted,
                difference.advice,
            )
            for difference, workers in self._found.items()
        ]
        return tuple(dict.fromkeys([*found, *self._told]))

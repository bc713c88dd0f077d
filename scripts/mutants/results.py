"""The result of each mutant, and a table of all results."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.mutants.sites import Mutant


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The result of one kind of tests for one mutant."""

    name: str
    kind_of_tests: str
    failed: str
    """The test that caught it; "" if all passed."""
    tests: int
    """The number of tests of this kind that run its line."""
    left_out: int
    """The number of these tests that were not run, for lack of time."""
    seconds: float


class Results:
    """A file of JSON lines, one for each mutant and kind of tests; the last one counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Tried]] = defaultdict(dict)

    def read(self) -> None:
        """Read the results of earlier runs."""
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                tried = Tried(**json.loads(line))
                self._known[tried.name][tried.kind_of_tests] = tried

    def add(self, tried: Tried) -> None:
        """Add a result."""
        self._known[tried.name][tried.kind_of_tests] = tried
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(tried)) + "\n")

    def noticed(self, mutant: Mutant) -> Tried | None:
        """Return how a mutant was caught; None if it was not."""
        return next((one for one in self._known[mutant.name].values() if one.failed), None)

    def has(self, mutant: Mutant, kind: str) -> bool:
        """Whether a kind of tests was run."""
        return kind in self._known[mutant.name]

    def line(self, mutant: Mutant) -> str:
        """Return a line with the result of one mutant."""
        change = f"{mutant.path}:{mutant.line} {mutant.place}: {mutant.kind}"
        if found := self.noticed(mutant):
            return f"{change}: caught by {found.failed}"
        asked = self._known[mutant.name].values()
        tests, left_out = sum(one.tests for one in asked), sum(one.left_out for one in asked)
        rest = f", {left_out} of which were not run" if left_out else ""
        return f"{change}: NOT CAUGHT by {tests} tests{rest}"


def summary(results: Results, mutants: Iterable[Mutant]) -> str:
    """Return how many were caught, by which tests, where, of which kind; and each that was not."""
    every = list(mutants)
    found = {one: results.noticed(one) for one in every}
    noticed = [one for one in every if found[one]]
    by = Counter(tried.kind_of_tests if tried else "nothing" for tried in found.values())
    lines = [f"{len(noticed)} of {len(every)} mutants were caught."]
    lines += [f"  by {name}: {number}" for name, number in sorted(by.items())]
    for of in (lambda one: one.path.partition("/")[0], lambda one: str(one.kind)):
        all_of, noticed_of = Counter(map(of, every)), Counter(map(of, noticed))
        lines += [f"  {name}: {noticed_of[name]} of {all_of[name]}" for name in sorted(all_of)]
    lines += sorted(results.line(one) for one in every if not found[one])
    return "\n".join(lines)

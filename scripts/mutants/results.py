"""What became of each mutant, and the table of them all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How one mutant fared."""

    name: str
    path: str
    line: int
    kind: str
    before: str
    after: str
    noticed_by: str
    """The kind of tests that noticed it, "" when none did."""
    test: str
    """The test that failed."""
    tests: int
    """How many tests run its line."""
    left_out: int
    """How many of them were not asked since all together take too long."""
    seconds: float

    @property
    def room(self) -> str:
        """The folder of the product that it is in."""
        return self.path.partition("/")[0]

    def __str__(self) -> str:
        """Return it as a line of text."""
        verdict = (
            f"noticed by {self.test}" if self.noticed_by else f"NOT NOTICED by {self.tests} tests"
        )
        if self.left_out and not self.noticed_by:
            verdict += f" ({self.left_out} of them not asked)"
        change = f"{self.before} -> {self.after}"
        return f"{self.path}:{self.line}: {change}: {verdict}, {self.seconds:.0f} s"


class Results:
    """A file of JSON lines; the last line of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[str, Tried] = {}

    def read(self) -> None:
        """Read what earlier runs have found."""
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                tried = Tried(**json.loads(line))
                self.known[tried.name] = tried

    def add(self, tried: Tried) -> None:
        """Keep and print one more."""
        self.known[tried.name] = tried
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(tried)) + "\n")
        print(tried, flush=True)


def summary(tried: Iterable[Tried]) -> str:
    """Return how many were noticed, by what, where, of which kind; and each that was not."""
    every = list(tried)
    lines = [f"{sum(bool(one.noticed_by) for one in every)} of {len(every)} mutants were noticed."]
    by = Counter(one.noticed_by or "nothing" for one in every)
    lines += [f"  by {name}: {number}" for name, number in sorted(by.items())]
    for title in ("room", "kind"):
        lines += _shares(title, every)
    lines += [str(one) for one in sorted(every, key=str) if not one.noticed_by]
    return "\n".join(lines)


def _shares(title: str, every: list[Tried]) -> list[str]:
    all_of = Counter(getattr(one, title) for one in every)
    noticed = Counter(getattr(one, title) for one in every if one.noticed_by)
    return [f"  {name}: {noticed[name]} of {all_of[name]}" for name in sorted(all_of)]

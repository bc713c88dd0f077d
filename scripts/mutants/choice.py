"""Chooses the tests for a mutant: those that run its line, the cheapest first."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.mutants.sites import Mutant
from scripts.mutants.traced.traced_lines import FILE, TEST


@dataclass(frozen=True)
class TimedTest:
    """A test, by pytest's name, with its duration."""

    name: str
    seconds: float

    @property
    def file(self) -> str:
        """The test's file."""
        return self.name.partition("::")[0]


@dataclass
class Covered:
    """Which tests run which lines, from the records of traced_lines.py and traced_tests.py."""

    tests: dict[str, TimedTest] = field(default_factory=dict)
    """All tests that pass without a mutant."""
    lines: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """A file and a line -> the tests that run it, or files of tests."""
    calls: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """A file -> the tests that run any of its requested lines, or files of tests."""

    def of(self, mutant: Mutant) -> list[TimedTest]:
        """Return the tests of a mutant: those of one file together, cheap files first.

        Lines that run at an import are covered by all tests that use the module.
        """
        names = set(self.lines[mutant.path, mutant.line])
        if mutant.at_import:
            names |= self.calls[mutant.path]
        found = [test for test in self.tests.values() if {test.name, test.file} & names]
        of_file: dict[str, list[TimedTest]] = defaultdict(list)
        for test in sorted(found, key=lambda test: (test.seconds, test.name)):
            of_file[test.file].append(test)
        files = sorted(of_file.values(), key=lambda tests: sum(test.seconds for test in tests))
        return [test for tests in files for test in tests]


def within(tests: Iterable[TimedTest], seconds: float) -> list[TimedTest]:
    """Return the first tests that fit into this time; at least one."""
    taken: list[TimedTest] = []
    left = seconds
    for test in tests:
        left -= test.seconds
        if left < 0 and taken:
            break
        taken.append(test)
    return taken


def read(folder: Path, mutants: Iterable[Mutant]) -> Covered:
    """Read the records of all processes of all tests, for the mutants' lines only."""
    covered = Covered()
    covered.tests.update({test.name: test for test in _passed(folder)})
    wanted: dict[str, set[int]] = defaultdict(set)
    for mutant in mutants:
        wanted[mutant.path].add(mutant.line)
    for notes in folder.glob("*/lines-*"):
        for test, path, line in _noted(notes, wanted):
            if test:
                covered.calls[path].add(test)
                if line in wanted[path]:
                    covered.lines[path, line].add(test)
    return covered


def _noted(notes: Path, wanted: Mapping[str, set[int]]) -> Iterator[tuple[str, str, int]]:
    test = path = ""
    for line in notes.read_text().splitlines():
        if line.startswith(TEST):
            test = line.removeprefix(TEST)
        elif line.startswith(FILE):
            path = line.removeprefix(FILE)
        elif path in wanted and line.isdecimal():
            yield test, path, int(line)


def _passed(folder: Path) -> Iterator[TimedTest]:
    """Return the tests that passed; a skipped test shows nothing."""
    seconds: dict[str, float] = defaultdict(float)
    outcomes: dict[str, set[str]] = defaultdict(set)
    for ends in folder.glob("*/ends-*"):
        for line in ends.read_text().splitlines():
            if found := re.fullmatch(r"([\d.]+) (\w+) (.*)", line):
                seconds[found[3]] += float(found[1])
                outcomes[found[3]].add(found[2])
    for name, how in outcomes.items():
        if how == {"passed"}:
            yield TimedTest(name, seconds[name])

"""Tries one mutant: runs its tests until one fails, and then that test once more, alone."""

from __future__ import annotations

import re
import time

from scripts.mutants.choice import Covered, TimedTest, within
from scripts.mutants.covering import INSIDE, UNIT
from scripts.mutants.results import Tried
from scripts.mutants.sites import Mutant
from scripts.mutants.trees import TOOK_TOO_LONG, Run, Tree

SECONDS = {UNIT: 60.0, INSIDE: 120.0}
"""The time for each kind of tests of a mutant. Tests beyond it are not run, and are counted."""
CONTAINERS_SECONDS = 900
START_SECONDS, SLOWER, TEST_SECONDS = 60, 5, 60
"""The limit of a run: these seconds, and this multiple of its usual time. A run that exceeds it has
caught the mutant."""
PASSED, FAILED, BROKEN = 0, 1, {2, 3, 4}
"""Exit codes of pytest; with the last ones, the files of tests could not be imported."""
FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/\S.*?)(?: - .*)?$", re.MULTILINE)
HANGS, IMPORT = "(takes too long)", "(import)"


def attempt(tree: Tree, mutant: Mutant, kind: str, covered: Covered) -> Tried:
    """Return the result of the tests of a kind that run a mutant's line."""
    begin = time.monotonic()
    tests = covered.of(mutant)
    asked = within(tests, SECONDS[kind])
    with tree.with_change(mutant):
        failed = _first_failure(tree, kind, asked)
    return Tried(
        name=mutant.name,
        kind_of_tests=kind,
        failed=failed,
        tests=len(tests),
        left_out=len(tests) - len(asked),
        seconds=round(time.monotonic() - begin, 1),
    )


def by_hand(tree: Tree, mutant: Mutant, paths: list[str]) -> Tried:
    """Return the result of tests that need the Docker engine."""
    begin = time.monotonic()
    with tree.with_change(mutant):
        run = tree.containers(["-x", *paths], CONTAINERS_SECONDS)
    return Tried(
        name=mutant.name,
        kind_of_tests="containers",
        failed=_failed(run, [TimedTest(path, 0.0) for path in paths]),
        tests=len(paths),
        left_out=0,
        seconds=round(time.monotonic() - begin, 1),
    )


def _first_failure(tree: Tree, kind: str, tests: list[TimedTest]) -> str:
    """Return the first test that fails twice; "" if there is none."""
    left = tests
    while left:
        run = _run(tree, kind, left)
        failed = _failed(run, left)
        if not failed or run.code != FAILED:
            return failed
        names = [test.name for test in left]
        if failed not in names:  # for example the fixture of a file
            return failed
        place = names.index(failed)
        if _run(tree, kind, [left[place]]).code != PASSED:
            return failed
        left = left[place + 1 :]
    return ""


def _failed(run: Run, tests: list[TimedTest]) -> str:
    if run.code == PASSED:
        return ""
    if run.code == TOOK_TOO_LONG:
        return HANGS
    if run.code in BROKEN:
        return IMPORT
    found = FAILURE.search(run.output)
    return found[1] if found else f"(code {run.code}) among {tests[0].name}"


def _run(tree: Tree, kind: str, tests: list[TimedTest]) -> Run:
    limit = START_SECONDS + SLOWER * sum(test.seconds for test in tests)
    names = [test.name for test in tests]
    arguments = ["-x", "--timeout", str(TEST_SECONDS), "--numprocesses", "0", *names]
    return tree.unit(arguments, limit) if kind == UNIT else tree.inside(arguments, limit)

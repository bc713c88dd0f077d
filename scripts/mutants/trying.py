"""Tries one mutant: runs its tests until one of them fails, and once more that one alone."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from scripts.mutants.choice import Covered, TimedTest, within
from scripts.mutants.covering import INSIDE, UNIT
from scripts.mutants.results import Tried
from scripts.mutants.sites import Mutant
from scripts.mutants.trees import TOOK_TOO_LONG, Run, Tree

SECONDS = {UNIT: 60.0, INSIDE: 120.0}
"""How much of each kind of tests a mutant gets: what would take longer is left out, and said."""
CONTAINERS_SECONDS = 900
START_SECONDS, SLOWER, TEST_SECONDS = 60, 5, 60
"""A run that takes this long to start, and that many times what it took, has noticed the mutant."""
PASSED, FAILED, BROKEN = 0, 1, {2, 3, 4}
"""Exit codes of pytest: with the last ones, the tests' own files could not be imported."""
FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/\S.*?)(?: - .*)?$", re.MULTILINE)
HANGS, IMPORT = "(takes too long)", "(import)"


def attempt(tree: Tree, mutant: Mutant, covered: Mapping[str, Covered]) -> Tried:
    """Return what the tests that run a mutant's line say of it: unit tests first."""
    begin = time.monotonic()
    number, left_out, noticed_by, test = 0, 0, "", ""
    with tree.with_change(mutant):
        for kind in (UNIT, INSIDE):
            tests = covered[kind].of(mutant)
            asked = within(tests, SECONDS[kind])
            number, left_out = number + len(tests), left_out + len(tests) - len(asked)
            test = _first_failure(tree, kind, asked)
            if test:
                noticed_by = kind
                break
    return _tried(tree, mutant, noticed_by, test, begin, tests=number, left_out=left_out)


def by_hand(tree: Tree, mutant: Mutant, paths: list[str]) -> Tried:
    """Return what tests that need the Docker engine say of a mutant."""
    begin = time.monotonic()
    with tree.with_change(mutant):
        run = tree.containers(["-x", *paths], CONTAINERS_SECONDS)
    test = _failed(run, [TimedTest(path, 0.0) for path in paths])
    kind = "containers" if test else ""
    return _tried(tree, mutant, kind, test, begin, tests=len(paths), left_out=0)


def _tried(  # noqa: PLR0913  what there is to say
    tree: Tree, mutant: Mutant, kind: str, test: str, begin: float, *, tests: int, left_out: int
) -> Tried:
    source = (tree.source / mutant.path).read_bytes()
    return Tried(
        name=mutant.name,
        path=mutant.path,
        line=mutant.line,
        kind=mutant.kind,
        before=" ".join(source[mutant.start : mutant.end].decode().split()),
        after=" ".join(mutant.text.split()),
        noticed_by=kind,
        test=test,
        tests=tests,
        left_out=left_out,
        seconds=round(time.monotonic() - begin, 1),
    )


def _first_failure(tree: Tree, kind: str, tests: list[TimedTest]) -> str:
    """Return the first test that fails twice, "" without one."""
    left = tests
    while left:
        run = _run(tree, kind, left)
        failed = _failed(run, left)
        if not failed or run.code != FAILED:
            return failed
        names = [test.name for test in left]
        if failed not in names:  # the fixture of a file, for one
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

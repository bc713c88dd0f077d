"""Mutation testing: makes small changes to the product, and lists those that no test catches.

`make mutants` runs it. First, one run of tests/unit and tests/inside records which test runs which
line. Then each mutant gets the tests that run its line, the cheapest first, until one fails.
Records and results are in .build/mutants/COMMIT. Results that are there are kept, so you can end a
run at any time and start it again.

Libraries for mutation testing (mutmut, Cosmic Ray) run the tests in their own Python. Most of our
product runs only in a container of the image, into which the mutant and the tests have to be
mounted. 100 mutants take an hour only if it is known which test runs which line, in all processes
that tests start and kill.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from scripts.mutants import choice, trying
from scripts.mutants.covering import KINDS, cover
from scripts.mutants.results import Results, summary
from scripts.mutants.sites import Mutant, changed, compiles, in_random_order, mutants_of
from scripts.mutants.trees import PROJECT, Tree

STATE = (PROJECT / ".build/mutants").resolve()  # the path by which Python knows its files
PRODUCT = ("entrypoint", "trainer", "compose")


def main(arguments: list[str]) -> int:
    """Try the mutants that were not tried yet, and print the results of all."""
    given = _parser().parse_args(arguments)
    commit = _git("rev-parse", "--short=12", given.commit)
    folder = STATE / commit
    end = time.monotonic() + 60 * given.minutes
    trees = [Tree(folder / f"tree-{number}") for number in range(given.processes)]
    for tree in trees:
        tree.prepare(commit)
    mutants = _chosen(trees[0].source, given.count, given.seed)
    results = Results(folder / f"seed-{given.seed}.jsonl")
    results.read()
    if given.tests:
        results.add(trying.by_hand(trees[0], _named(mutants, given.only), given.tests))
        return 0
    is_all = all(_ask(kind, mutants, trees, results, end=end) for kind in KINDS)
    print(summary(results, mutants))
    if not is_all:
        print("Some mutants were not tried. Start it again to continue.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="how many mutants; 100")
    parser.add_argument("--seed", type=int, default=1, help="which ones; 1")
    parser.add_argument("--commit", default="HEAD", help="of which commit; the last one")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time; 2")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin none after that")
    parser.add_argument("--only", metavar="FILE:LINE", help="try this one with --tests")
    parser.add_argument("--tests", nargs="+", help="tests of tests/image or tests/cluster")
    return parser


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PROJECT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _chosen(source: Path, count: int, seed: int) -> list[Mutant]:
    """Return the first mutants of the seed's order that compile."""
    paths = sorted(path for package in PRODUCT for path in (source / package).rglob("*.py"))
    texts = {str(path.relative_to(source)): path.read_bytes() for path in paths}
    every = [mutant for path, text in texts.items() for mutant in mutants_of(path, text)]
    taken: list[Mutant] = []
    for mutant in in_random_order(every, seed):
        if compiles(changed(texts[mutant.path], mutant)):
            taken.append(mutant)
        if len(taken) == count:
            break
    return taken


def _named(mutants: list[Mutant], place: str | None) -> Mutant:
    for mutant in mutants:
        if place == f"{mutant.path}:{mutant.line}":
            return mutant
    sys.exit(f"mutants: --only {place}: none of the {len(mutants)} mutants is there")


def _ask(
    kind: str, mutants: list[Mutant], trees: list[Tree], results: Results, *, end: float
) -> bool:
    """Try the uncaught mutants with tests of one kind; return whether there was time."""
    notes = trees[0].root.parent / kind
    if not cover(trees[0], kind, notes, end):
        return False
    asked = [one for one in mutants if not results.noticed(one) and not results.has(one, kind)]
    covered = choice.read(notes, asked)
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def attempt(mutant: Mutant) -> bool:
        if time.monotonic() > end:
            return False
        tree = free.get()
        try:
            results.add(trying.attempt(tree, mutant, kind, covered))
        finally:
            free.put(tree)
        print(results.line(mutant), flush=True)
        return True

    with ThreadPoolExecutor(len(trees)) as pool:
        return all(list(pool.map(attempt, asked)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

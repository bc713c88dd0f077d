"""Runs all tests once, without a mutant, and records which lines each one runs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from scripts.mutants.trees import Tree

KINDS = UNIT, INSIDE = "unit", "inside"
"""Two kinds of tests, by their folders' names in tests/, in the order in which they run."""
FILES_AT_A_TIME = 4
LIMIT_SECONDS = 1800


def cover(tree: Tree, kind: str, folder: Path, end: float) -> bool:
    """Run the parts that were not run yet; return whether all were done before the time `end`."""
    for name, paths in _parts(tree, kind).items():
        notes = folder / name
        if (notes / "done").exists():
            continue
        if time.monotonic() > end:
            return False
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir(parents=True)
        _run(tree, kind, paths, notes)
        (notes / "done").touch()
    return True


def _parts(tree: Tree, kind: str) -> dict[str, list[str]]:
    """Return the tests of one part: all unit tests, or a few files of the others."""
    if kind == UNIT:
        return {"all": ["tests/unit"]}
    files = sorted((tree.source / "tests/inside").glob("test_*.py"))
    paths = [str(path.relative_to(tree.source)) for path in files]
    starts = range(0, len(paths), FILES_AT_A_TIME)
    return {f"{start}": paths[start : start + FILES_AT_A_TIME] for start in starts}


def _run(tree: Tree, kind: str, paths: list[str], notes: Path) -> None:
    begin = time.monotonic()
    if kind == UNIT:
        run = tree.unit(
            ["--numprocesses", "6", "--dist", "worksteal", *paths], LIMIT_SECONDS, notes
        )
    else:
        run = tree.inside(["--numprocesses", "2", *paths], LIMIT_SECONDS, notes)
    print(f"{kind}: {paths[0]} and {len(paths) - 1} more, {time.monotonic() - begin:.0f} s")
    print("\n".join(run.output.splitlines()[-15:]), flush=True)
    # Tests that fail show nothing, and are not used.
    if run.code not in {0, 1} or not any(
        b"\n@" in one.read_bytes() for one in notes.glob("lines-*")
    ):
        raise RuntimeError(f"the tests of {kind} cannot be run (code {run.code})")

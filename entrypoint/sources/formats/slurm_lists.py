"""Slurm's compressed lists: node names (`n[01-03,07],m5`) and tasks per node (`3(x2),2,1`).

Sources: src/common/hostlist.c of https://github.com/SchedMD/slurm for the names, and "OUTPUT
ENVIRONMENT VARIABLES" of https://slurm.schedmd.com/srun.html for the tasks.
"""

from __future__ import annotations

import itertools
import math
import re

MOST = 100_000
"""The largest number of nodes or tasks. A list of a few characters could mean billions."""

_BRACKETS = re.compile(r"(\[[^\[\]]*\])")
_RANGE = re.compile("([0-9]{1,9})(?:-([0-9]{1,9}))?")
_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


class SlurmListError(ValueError):
    """The text is not a list of Slurm's; the message is a sentence that explains why."""


Numbers = tuple[int, range]
"""The ranges of a bracket, with the width of the first number."""

Part = str | list[Numbers]
"""One part of a name: text, or the ranges of a bracket."""


def expand_nodes(text: str) -> list[str]:
    """Return the nodes' names in the order of the list. Raises SlurmListError."""
    entries: list[list[Part]] = [[]]
    for place, piece in enumerate(_BRACKETS.split(text.strip())):
        if place % 2:
            entries[-1].append([_range(item) for item in piece[1:-1].split(",")])
        else:
            first, *others = piece.split(",")
            entries[-1].append(first)
            entries += [[name] for name in others]
    _check_size(sum(math.prod(map(_size, entry)) for entry in entries))
    return ["".join(names) for entry in entries for names in itertools.product(*map(_all, entry))]


def _range(text: str) -> Numbers:
    """Return the numbers of `01-03` or `07`."""
    match = _RANGE.fullmatch(text)
    if not match or int(match[2] or match[1]) < int(match[1]):
        reason = f'"{text[:20]}" in brackets is neither a number nor a range such as 01-03.'
        raise SlurmListError(reason)
    return len(match[1]), range(int(match[1]), int(match[2] or match[1]) + 1)


def _size(part: Part) -> int:
    return 1 if isinstance(part, str) else sum(len(numbers) for _, numbers in part)


def _all(part: Part) -> list[str]:
    """Return the texts of a part; numbers keep their leading zeros."""
    if isinstance(part, str):
        return [part]
    return [str(number).zfill(width) for width, numbers in part for number in numbers]


def expand_tasks(text: str) -> list[int]:
    """Return the number of tasks of each node. Raises SlurmListError."""
    runs: list[tuple[int, int]] = []
    for item in text.strip().split(","):
        match = _REPEATED.fullmatch(item)
        if not match or not int(match[1]) or not int(match[2] or 1):
            reason = f'"{item[:20]}" is not a number of tasks, such as 3 or 3(x2).'
            raise SlurmListError(reason)
        runs.append((int(match[1]), int(match[2] or 1)))
    _check_size(sum(tasks * nodes for tasks, nodes in runs))
    return [tasks for tasks, nodes in runs for _ in range(nodes)]


def _check_size(count: int) -> None:
    if count > MOST:
        reason = f"It stands for {count} entries; at most {MOST} are accepted."
        raise SlurmListError(reason)

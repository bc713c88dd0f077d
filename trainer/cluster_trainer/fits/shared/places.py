"""Translates paths of the chief's callbacks into this worker's paths.

They differ if a script names a folder by the time, or creates a temporary folder.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def paths_of(callbacks: Sequence[Any]) -> dict[str, Path]:
    """Return the paths in callbacks' attributes, by the callback's position and the name."""
    return {
        f"{place} {name}": Path(value)
        for place, callback in enumerate(callbacks)
        for name, value in getattr(callback, "__dict__", {}).items()
        if isinstance(value, (str, Path)) and os.sep in str(value)
    }


def renamed(chiefs: Mapping[str, str], mine: Mapping[str, str]) -> dict[str, str]:
    """Return the beginnings of paths that differ: the chief's -> this worker's.

    Args:
        chiefs: the paths of the chief's callbacks; see `paths_of`.
        mine: the paths of this worker's callbacks.
    """
    pairs = [(chiefs[name], mine[name]) for name in chiefs.keys() & mine.keys()]
    return dict(_beginnings(one, other) for one, other in sorted(pairs) if one != other)


def _beginnings(one: str, other: str) -> tuple[str, str]:
    """Return two paths without their equal last parts, and without an epoch's placeholder.

    A result of whole parts ends with a separator. One that ends within a part, before a
    placeholder, does not.
    """
    begins, cut, _ = one.partition("{")
    chiefs, mine = Path(begins), Path(other.partition("{")[0])
    is_whole = not cut or begins.endswith(os.sep)
    while chiefs.name == mine.name and chiefs.parent.name and mine.parent.name:
        chiefs, mine, is_whole = chiefs.parent, mine.parent, True
    end = os.sep if is_whole else ""
    return f"{chiefs}{end}", f"{mine}{end}"


def here(file: Path, beginnings: Mapping[str, str]) -> Path:
    """Return this worker's path for a file of the chief's; `beginnings` are from `renamed`."""
    path = f"{file}{os.sep}"
    longest = max(filter(path.startswith, beginnings), key=len, default="")
    return Path(beginnings[longest] + path[len(longest) :]) if longest else file

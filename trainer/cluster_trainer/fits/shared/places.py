"""A worker's paths of the chief callbacks' files, which may have other names there.

A script that names a folder by the time, or asks for a temporary one, has another on each worker.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def paths_of(callbacks: Sequence[Any]) -> dict[str, Path]:
    """Return the paths that callbacks hold, by the callback's position and the attribute's name."""
    return {
        f"{place} {name}": Path(value)
        for place, callback in enumerate(callbacks)
        for name, value in getattr(callback, "__dict__", {}).items()
        if isinstance(value, (str, Path)) and os.sep in str(value)
    }


def renamed(chiefs: Mapping[str, str], mine: Mapping[str, str]) -> dict[str, str]:
    """Return the beginnings of paths that differ between the chief and this worker.

    Args:
        chiefs: paths of the chief's callbacks, see `paths_of`.
        mine: the same of this worker's.
    """
    pairs = [(chiefs[name], mine[name]) for name in chiefs.keys() & mine.keys()]
    return dict(_beginnings(one, other) for one, other in sorted(pairs) if one != other)


def _beginnings(one: str, other: str) -> tuple[str, str]:
    """Return two paths up to an epoch's placeholder, without their equal last parts.

    A whole part ends with a separator; the text before a placeholder does not.
    """
    begins, cut, _ = one.partition("{")
    chiefs, mine = Path(begins), Path(other.partition("{")[0])
    is_whole = not cut or begins.endswith(os.sep)
    while chiefs.name == mine.name and chiefs.parent.name and mine.parent.name:
        chiefs, mine, is_whole = chiefs.parent, mine.parent, True
    end = os.sep if is_whole else ""
    return f"{chiefs}{end}", f"{mine}{end}"


def here(file: Path, beginnings: Mapping[str, str]) -> Path:
    """Return the path of a file of the chief's on this worker, see `renamed`."""
    path = f"{file}{os.sep}"
    longest = max(filter(path.startswith, beginnings), key=len, default="")
    return Path(beginnings[longest] + path[len(longest) :]) if longest else file

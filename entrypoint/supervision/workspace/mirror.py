"""Mirrors a folder tree: real folders, with a link for each file.

The folders are real so that `os.walk` and `Path.rglob` enter them, and so that a script can write
there. Links to folders would allow neither.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

MOST_FILES = 20_000
"""The number of files that are linked one by one. A folder beyond this limit is linked as a
whole."""
NO_DATA = frozenset({".git", ".venv", "venv", "node_modules"})
COMPILED = "__pycache__"
"""Omitted: Python compiles again where it needs to."""
WORKING_FOLDERS = "worker-*/workspace"


@dataclass(frozen=True)
class Mirror:
    """A source folder, and the folder that mirrors it and may hold its own files."""

    source: Path
    folder: Path
    aside: Path
    """Where the folder's own files move if the source has a file of the same name."""
    here: Path
    """The folder in the source that is always mirrored, with those above it."""
    moved: dict[Path, Path] = field(default_factory=dict)
    """The source's files that replaced another file, and the new place of that file."""
    whole: list[Path] = field(default_factory=list)
    """Folders of the source that are linked as a whole because of their kind; see
    `_is_mirrored`."""
    too_large: list[Path] = field(default_factory=list)
    """Folders of the source that are linked as a whole because they hold too many files."""

    def renew(self) -> None:
        """Make all links again, so that none remains of another source or an earlier start.

        Raises:
            OSError: something cannot be listed, linked or moved aside.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_links(self.source, self.folder)
        self._fill(self.source, self.folder, MOST_FILES)

    def _remove_links(self, source: Path, folder: Path) -> None:
        """Remove the links of an earlier start, and folders that held nothing else."""
        before = list(os.scandir(folder))
        for entry in before:
            own, place = source / entry.name, Path(entry.path)
            if entry.is_symlink() and os.readlink(place) == str(own):  # noqa: PTH115 -- the text itself
                place.unlink()
            elif entry.is_dir(follow_symlinks=False) and os.access(place, os.R_OK | os.X_OK):
                self._remove_links(own, place)
        if before and folder != self.folder and not os.listdir(folder):  # noqa: PTH208 -- needs no paths
            folder.rmdir()

    def _fill(self, source: Path, folder: Path, room: int) -> int:
        """Mirror the content of a folder; return how many more files may be linked."""
        is_beside = self._leads_here(source)
        entries = (one for one in os.scandir(source) if one.name != COMPILED)
        for entry in sorted(entries, key=lambda one: one.name):
            own, place = Path(entry.path), folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            size = _size(entry, room) if is_folder else 0
            if is_folder and (self._leads_here(own) or (_is_mirrored(entry) and size <= room)):
                self._make(own, place)
                room = self._fill(own, place, room)
            else:
                self._link(entry, place, is_too_large=size > room)
                room -= not is_beside  # files beside the script are always linked
        return room

    def _leads_here(self, own: Path) -> bool:
        return own in (self.here, *self.here.parents)

    def _make(self, own: Path, place: Path) -> None:
        if place.is_symlink() or not place.is_dir():
            self._clear(own, place)
            place.mkdir()

    def _link(self, entry: os.DirEntry[str], place: Path, *, is_too_large: bool) -> None:
        own = Path(entry.path)
        self._clear(own, place)
        place.symlink_to(own)
        if entry.is_dir(follow_symlinks=False):
            (self.too_large if is_too_large else self.whole).append(own)

    def _clear(self, own: Path, place: Path) -> None:
        """Move a file of the mirror aside if the source has a file of the same name."""
        if not os.path.lexists(place):
            return
        target = self.aside / place.relative_to(self.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(place, target)  # a mounted bucket may not support renaming
        self.moved[own] = target


def _is_mirrored(entry: os.DirEntry[str]) -> bool:
    """Tell whether a folder is mirrored as a real folder, instead of a link.

    A writable folder is meant to be written, and a mirror would hide the results. A run's folder
    holds mirrors, which would be mirrored again at each start.
    """
    if not entry.is_dir(follow_symlinks=False) or entry.name in NO_DATA:
        return False
    can_list = os.access(entry.path, os.R_OK | os.X_OK) and not os.access(entry.path, os.W_OK)
    return can_list and not any(Path(entry.path).glob(WORKING_FOLDERS))


def _size(entry: os.DirEntry[str], most: int) -> int:
    """Return the number of files and folders in a folder's mirror; stop above `most`."""
    return sum(1 for _ in islice(_below(entry), most + 1))


def _below(entry: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    if _is_mirrored(entry):
        for one in os.scandir(entry.path):
            yield one
            yield from _below(one)

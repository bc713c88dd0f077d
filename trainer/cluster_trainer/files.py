"""Atomic files: complete under their name, or absent."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished."


def write_whole(file: Path, content: bytes, *, durable: bool) -> None:
    """Write a file under another name, and rename it once it is complete.

    Args:
        file: the file, in an existing folder; an earlier file is replaced.
        content: the whole content.
        durable: whether to wait until it would survive a loss of power.

    Raises:
        OSError: it could not be written; an earlier file of that name is still there.
    """

    def write(opened: BinaryIO) -> str:
        opened.write(content)
        return file.name

    write_streamed(file.parent, file.name, write, durable=durable)


def write_streamed(
    folder: Path, name: str, write: Callable[[BinaryIO], str], *, durable: bool
) -> Path:
    """Write a file piece by piece; see `write_whole`.

    Args:
        folder: an existing folder.
        name: a name that distinguishes the unfinished file from others.
        write: writes to the file that it gets, and returns the final name, which may depend on the
            content.
        durable: whether to wait until it would survive a loss of power.

    Returns:
        the complete file.

    Raises:
        OSError: it could not be written; an earlier file of that name is still there.
    """
    unfinished = folder / f"{UNFINISHED}{name}"
    try:
        with unfinished.open("wb") as opened:
            file = folder / write(opened)
            if durable:
                opened.flush()
                os.fsync(opened.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(folder)
    return file


def append_whole(file: Path, content: bytes) -> None:
    """Append all of the content to a file, or nothing; pass it to the operating system at once.

    Raises:
        OSError: there is no such folder, or no room for all of it.
    """
    with file.open("ab", buffering=0) as opened:
        size = opened.tell()
        written = opened.write(content)
        if written != len(content):
            opened.truncate(size)
            raise OSError(f"there was room for {written} of {len(content)} bytes")


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist; they survive a power loss."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def sync_tree(folder: Path) -> None:
    """Wait until a folder's files, at any depth, and their names would survive a power loss."""
    for place in folder.rglob("*"):
        if place.is_dir():
            sync_folder(place)
        else:
            sync_file(place)
    sync_folder(folder)


def sync_file(file: Path) -> None:
    """Wait until a file's content would survive a power loss."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files, if the file system can.

    A bucket that is mounted as a folder cannot.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

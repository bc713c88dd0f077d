"""Files that are there whole under their name, or not at all."""

import os
from contextlib import suppress
from pathlib import Path

UNFINISHED = ".unfinished."


def write_whole(file: Path, content: bytes, *, durable: bool) -> None:
    """Write a file under another name, and give it its own once it is complete.

    Args:
        file: in a folder that is there; an earlier one is replaced.
        content: all of it.
        durable: wait until it would survive a loss of power.

    Raises:
        OSError: it could not be written; an earlier file of that name is still there.
    """
    unfinished = file.with_name(UNFINISHED + file.name)
    try:
        with unfinished.open("wb") as opened:
            opened.write(content)
            if durable:
                opened.flush()
                os.fsync(opened.fileno())
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name as durable as the file, where the file system can (a bucket cannot)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

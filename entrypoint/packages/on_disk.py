"""Makes sure that written files survive a power loss."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sync_file_system(folder: Path) -> None:
    """Wait until the folder's whole file system is on its disk. Raises OSError.

    One call covers any number of files: 0.1 s for 4,000 files. fsync of each file took 1.3 to
    3.8 s. Python's os.sync would also wait for all other disks, and reports no errors.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with _opened(folder) as descriptor:
        if libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on its disk. Raises OSError."""
    with _opened(folder) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some shared file systems cannot sync folders
                raise


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

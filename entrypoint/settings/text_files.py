"""Reading small text files that a user named, without ever waiting for one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 1 << 20

READABLE_FILE = "a readable UTF-8 text file of at most 1 MiB"


class UnreadableFileError(Exception):
    """A file cannot be used; the message is a sentence that says why."""


def is_file(path: Path) -> bool:
    """Whether there is such a file, as far as this user may know."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def read_text(path: Path) -> str:
    """Return the file's text, without a byte order mark and the newlines at its end.

    Raises UnreadableFileError.
    """
    try:
        content = _read_bytes(path)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "It is not UTF-8 text."
        raise UnreadableFileError(reason) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        raise UnreadableFileError(_reason(error)) from None
    if "\0" in text:
        reason = "It is not text: it contains NUL bytes."
        raise UnreadableFileError(reason)
    return text.rstrip("\r\n")


def _read_bytes(path: Path) -> bytes:
    """Return the content of a regular file; anything else could make a reader wait forever."""
    if stat.S_ISDIR(mode := path.stat().st_mode):
        reason = "It is a directory."
        raise UnreadableFileError(reason)
    if not stat.S_ISREG(mode):
        reason = "It is not a regular file."
        raise UnreadableFileError(reason)
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        reason = "It is larger than 1 MiB."
        raise UnreadableFileError(reason)
    return content


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "It does not exist."
    if isinstance(error, PermissionError):
        return f"User id {os.geteuid()} has no permission to read it."
    reason = error.strerror if isinstance(error, OSError) else None
    return f"It cannot be read: {reason or 'that is not a path'}."

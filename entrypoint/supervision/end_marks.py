"""Marks of a successful end: the command writes them, and exit code 0 makes them valid.

A program cannot know its own exit code in its last lines. It writes its mark as `NAME.pending`, and
adds the path to the file END_MARKS. If the command ends with 0, each mark gets its final name. A
command that was asked to stop gets none: it may handle SIGTERM with `sys.exit(0)` in the middle.
Beside it, `NAME.by` has a digest of the command. So a worker that is restarted alone, after all
have ended, knows that nothing is left to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from entrypoint.log import Log
from entrypoint.settings.files import is_file

VARIABLE = "END_MARKS"
"""The variable that tells the command where to list its marks."""
PENDING, BY = ".pending", ".by"
OF_A_SCRIPT = "ENDED"
"""The mark of a script's fits, in its worker's folder."""
MOST_BYTES = 1_000_000
SETTING = "TRAINER_"


def forget(file: Path) -> None:
    """Forget the marks that the command listed before it was restarted."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def put(file: Path, by: str, log: Log) -> None:
    """Rename the marks that the command has listed, after it has ended with 0 by itself.

    `by` is the command's digest.
    """
    for mark in _listed(file):
        try:
            mark.with_suffix(BY).write_text(by)
            mark.replace(mark.with_suffix(""))
        except OSError as error:
            log.warning(f"the end of the command could not be noted in {mark}: {error.strerror}")
    forget(file)


def mark_in(folder: Path, by: str) -> Path | None:
    """Return the mark that the command of this digest has left in a worker's folder, if any."""
    mark = folder / OF_A_SCRIPT
    try:
        is_there = mark.is_file() and mark.with_suffix(BY).read_text() == by
    except (OSError, ValueError):
        return None
    return mark if is_there else None


def digest(
    command: Sequence[str], settings: Mapping[str, str], workers: int, folder: Path | None
) -> str:
    """Return a digest that identifies a command: its words, the files they name, its settings.

    Args:
        command: its words. Only their digests are stored, because words may be secret.
        settings: its variables. Only those with the prefix TRAINER_ count.
        workers: the number of workers that run it.
        folder: its working directory; None: this process's.
    """
    found = [_digest_of(word, folder or Path()) for word in command]
    given = sorted(one for one in settings.items() if one[0].startswith(SETTING))
    return hashlib.sha256(json.dumps([workers, found, given]).encode()).hexdigest()


def _digest_of(word: str, folder: Path) -> list[str]:
    content = b""
    with suppress(OSError, ValueError):
        file = folder / word
        if file.is_file() and file.stat().st_size <= MOST_BYTES:
            content = file.read_bytes()
    return [hashlib.sha256(part).hexdigest() for part in (word.encode(errors="replace"), content)]


def _listed(file: Path) -> list[Path]:
    """Return the listed marks, without invalid paths."""
    try:
        with file.open(errors="surrogateescape") as opened:
            lines = opened.read(MOST_BYTES).splitlines()
    except (OSError, ValueError):
        return []
    paths = [Path(line) for line in dict.fromkeys(lines) if line.endswith(PENDING)]
    return [path for path in paths if is_file(path) and not path.is_symlink()]

"""Marks of an end that only the exit code tells: the command writes them, and they count after 0.

A program that runs its last lines does not know yet with which code it ends. It writes its mark as
`NAME.pending`, and adds the path to the file END_MARKS. If the command ends with 0, each mark gets
its name.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from entrypoint.log import Log

VARIABLE = "END_MARKS"
PENDING = ".pending"
MOST_BYTES = 1_000_000


def variable(file: Path | None) -> dict[str, str]:
    """Return what tells the command where to list its marks."""
    return {VARIABLE: str(file)} if file else {}


def forget(file: Path | None) -> None:
    """Forget what the command listed before it was started again."""
    if file:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def put(file: Path | None, log: Log) -> None:
    """Give the marks that the command has listed their names: it has ended with 0."""
    for mark in _listed(file) if file else ():
        try:
            mark.replace(mark.with_suffix(""))
        except OSError as error:
            log.warning(f"the command's end could not be marked as {mark}: {error.strerror}")
    forget(file)


def _listed(file: Path) -> list[Path]:
    """Return the marks; whatever is no path of one is left out."""
    try:
        with file.open(errors="surrogateescape") as opened:
            lines = opened.read(MOST_BYTES).splitlines()
    except (OSError, ValueError):
        return []
    paths = [Path(line) for line in dict.fromkeys(lines) if line.endswith(PENDING)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]

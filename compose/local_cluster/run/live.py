"""The live line of a terminal, which shows the run's progress and the missing workers.

The chief writes its progress to a file in its folder (LIVE_FILE). In a pipe, with NO_COLOR or with
TERM=dumb, there is no live line, and no control characters are written.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from threading import Event, Thread
from typing import Any, Callable

from local_cluster import messages
from local_cluster.shared_folder import SharedFolder

FILE = "live.json"
TICK_SECONDS = 0.5
STALE_SECONDS = 60.0
"""After this time without news, the line is out of date."""
BAR_WIDTH = 10
ELLIPSIS = "\u2026"
MARKS = ("Mn", "Me")
"""Unicode's categories of characters that combine with the one before."""
WIDE = ("W", "F")
"""Unicode's widths of characters that take two columns (UAX #11)."""
AS_PICTURE = "\ufe0f"
"""Makes the character before it an emoji, which some terminals draw wider."""


def may_draw(environ: Mapping[str, str]) -> bool:
    """Tell whether the standard output is a terminal that can redraw a line."""
    is_plain = environ.get("NO_COLOR") or environ.get("TERM", "") in ("", "dumb", "unknown")
    return sys.stdout is not None and sys.stdout.isatty() and not is_plain


class Live:
    """The live line, redrawn twice a second within a `with` block.

    Args:
        folder: the chief's folder, in which it reports its progress.
        missing: returns the workers that do not run.
    """

    def __init__(self, folder: SharedFolder, missing: Callable[[], Sequence[str]]) -> None:
        self._folder, self._missing = folder, missing
        self._is_over = Event()
        self._thread = Thread(target=self._draw, daemon=True)
        self._forgotten = self._seen = b""
        self._changed = 0.0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        messages.draw(sys.stdout, "")

    def forget(self) -> None:
        """Remove the line until the chief writes its progress again."""
        self._forgotten = self._seen

    def _draw(self) -> None:
        while not self._is_over.wait(TICK_SECONDS):
            text = self._text()
            messages.draw(sys.stdout, cut(text, shutil.get_terminal_size().columns - 1))

    def _text(self) -> str:
        told, now = _read(self._folder), time.monotonic()
        members = parsed(told)
        left_out = members.get("missing")  # MIN_WORKERS
        gone = left_out if isinstance(left_out, list) else []
        if waited_for := [one for one in self._missing() if one not in gone]:
            return f"waiting for {', '.join(waited_for)}"
        if told != self._seen:
            self._seen, self._changed = told, now
        if told == self._forgotten or now > self._changed + STALE_SECONDS:
            return ""
        return line(members)


def parsed(told: bytes) -> Mapping[str, Any]:
    """Return the content of the chief's file; empty if it cannot be read."""
    try:
        members = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def line(members: Mapping[str, Any]) -> str:
    """Return the content as a line; empty if a field is missing."""
    try:
        done, total = int(members["done"]), members["total"]
        place = f"epoch {members['epoch']}/{members['epochs']}"
        facts = [str(fact) for fact in members["facts"]]
        if members["what"] != "training":
            return "  ".join([f"{place}  {members['what']}", *facts])
        steps = f"{bar(done, total)} {done}/{total}" if total else f"{done} steps"
    except (ValueError, KeyError, TypeError):
        return ""
    return "  ".join([place, steps, *facts])


def bar(done: int, total: int) -> str:
    """Return the progress as a bar."""
    full = min(BAR_WIDTH, BAR_WIDTH * done // total)
    return "\u2501" * full + "\u2500" * (BAR_WIDTH - full)


def cut(text: str, width: int) -> str:
    """Return a text cut to this number of columns, without control characters.

    A text that is too wide would wrap, and only its second line would be redrawn.
    """
    plain = "".join(one if one.isprintable() else "?" for one in text)
    if sum(map(columns, plain)) <= width:
        return plain
    kept, left = "", width - columns(ELLIPSIS)
    for one in plain:
        left -= columns(one)
        if left < 0:
            break
        kept += one
    return kept + ELLIPSIS


def columns(letter: str) -> int:
    """Return the maximum number of columns that a terminal needs for a printable character."""
    if unicodedata.category(letter) in MARKS and letter != AS_PICTURE:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in WIDE else 1


def _read(folder: SharedFolder) -> bytes:
    try:
        return folder.read(FILE)
    except OSError:
        return b""

"""Decides which of a worker's lines its screen shows, and whether it may redraw a line."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO = ("", "no", "off", "false")
PLAIN_TERMINALS = ("dumb", "unknown")


@dataclass(frozen=True)
class View:
    """How a worker's screen shows a run.

    Attributes:
        is_chief: whether this worker speaks for the cluster; another says on its screen what
            concerns itself.
        verbose: whether each worker says all.
        may_draw: whether a terminal may be told to draw a line anew.
        live_file: gets where the run is, for a program that draws it; a name in the worker's own
            folder. None: nobody looks.
    """

    is_chief: bool = True
    verbose: bool = False
    may_draw: bool = False
    live_file: Path | None = None


def read_view(environ: Mapping[str, str], *, is_chief: bool) -> View:
    """Read it from VERBOSE, NO_COLOR (no-color.org), TERM and LIVE_FILE."""
    file = environ.get("LIVE_FILE")
    return View(
        is_chief=is_chief,
        verbose=environ.get("VERBOSE", "").strip().lower().lstrip("0") not in NO,
        may_draw=may_draw(environ),
        live_file=Path(file) if file else None,
    )


def is_terminal(stream: Any) -> bool:
    """Tell whether a stream is a terminal; a script may have replaced it by any object."""
    return bool(getattr(stream, "isatty", lambda: False)())


def may_draw(environ: Mapping[str, str]) -> bool:
    """Tell whether a terminal, if there is one, supports more than text."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", *PLAIN_TERMINALS)

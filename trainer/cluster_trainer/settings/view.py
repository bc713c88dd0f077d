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
        is_chief: whether this worker prints the lines about the whole cluster. Others print only
            lines about themselves.
        verbose: whether each worker prints all lines.
        may_draw: whether a line may be redrawn, if the screen is a terminal.
        live_file: the name, in the worker's own folder, of a file for the progress of the run, for
            a program that draws it; None: there is none.
    """

    is_chief: bool = True
    verbose: bool = False
    may_draw: bool = False
    live_file: Path | None = None


def read_view(environ: Mapping[str, str], *, is_chief: bool) -> View:
    """Read the view from VERBOSE, NO_COLOR (no-color.org), TERM and LIVE_FILE."""
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
    """Tell whether a terminal, if there is one, supports more than plain text."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", *PLAIN_TERMINALS)

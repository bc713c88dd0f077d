"""A worker's standard output: log lines, and on a terminal a line that is redrawn.

`rich` draws that line. Pipes and files get only text.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster_trainer.results.on_screen.progress import Progress
from cluster_trainer.settings.view import View, is_terminal

LIVE = {"is_live": True}
"""`extra` of a log line whose content the redrawn line shows, too."""
OWN = {"is_own": True}
"""`extra` of a log line that concerns only the worker that prints it."""


class OneVoice(logging.Filter):
    """Changes lines that the chief also prints to DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let all lines pass, and change their level if necessary."""
        if record.levelno == logging.INFO and not getattr(record, "is_own", False):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return True


class Screen(logging.StreamHandler[Any]):
    """Shows the log on the standard output.

    Args:
        view: chooses the lines to show.
        is_kept: whether a file has the lines that are not shown.
    """

    def __init__(self, view: View = View(), *, is_kept: bool = True) -> None:  # noqa: B008  frozen
        super().__init__(sys.stdout)
        self.setLevel(logging.INFO if is_kept and not view.verbose else logging.DEBUG)
        self.draws = view.may_draw and is_terminal(sys.stdout)
        self._line: Any = None

    def show(self, progress: Progress) -> None:
        """Draw the progress of the run, on a terminal."""
        if not self.draws:
            return
        with self._alone(), self._given_up():
            if self._line is None:
                from cluster_trainer.results.on_screen.live_line import LiveLine  # noqa: PLC0415  it is slow

                self._line = LiveLine()
            self._line.show(progress)

    def hide(self) -> None:
        """Remove the drawn line."""
        with self._alone(), self._given_up():
            line, self._line = self._line, None
            if line:
                line.end()

    def begin_anew(self) -> None:
        """Begin a new line after one that a killed process has drawn."""
        if self.draws:
            with self._given_up():
                self.stream.write("\n")

    def emit(self, record: logging.LogRecord) -> None:
        """Show a log line above the drawn line; `handle` holds the lock."""
        if self._line is None:
            super().emit(record)
        elif not getattr(record, "is_live", False):
            with self._given_up():
                self._line.print(self.format(record))

    @contextmanager
    def _given_up(self) -> Iterator[None]:
        """Stop drawing if it fails in the context: a closed terminal must not end the training."""
        try:
            yield
        except Exception:  # noqa: BLE001  of rich, of the terminal, or no thread can be started
            self.draws, self._line = False, None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the handler's own lock, which survives signal handlers that log, and forks."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """Remove the drawn line, and close the handler."""
        self.hide()
        super().close()

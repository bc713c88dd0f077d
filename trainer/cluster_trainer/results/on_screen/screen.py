"""A worker's standard output: its lines, and on a terminal one more, which is redrawn.

`rich` draws it. Pipes and files get only text.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster_trainer.results.on_screen.progress import Progress
from cluster_trainer.settings.view import View, is_terminal

LIVE = {"is_live": True}
"""Marks a line that a terminal shows anyway (`extra`)."""
OWN = {"is_own": True}
"""Marks a line that concerns the worker that prints it, and not all of them."""


class OneVoice(logging.Filter):
    """Changes lines that the chief also prints to DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let all lines pass."""
        if record.levelno == logging.INFO and not getattr(record, "is_own", False):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return True


class Screen(logging.StreamHandler[Any]):
    """Shows the log on the standard output.

    Args:
        view: what of it.
        is_kept: whether the lines that are not shown are in a file.
    """

    def __init__(self, view: View = View(), *, is_kept: bool = True) -> None:  # noqa: B008  frozen
        super().__init__(sys.stdout)
        self.setLevel(logging.INFO if is_kept and not view.verbose else logging.DEBUG)
        self.draws = view.may_draw and is_terminal(sys.stdout)
        self._line: Any = None

    def show(self, progress: Progress) -> None:
        """Draw where the run is, on a terminal."""
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
        """Leave a line that a killed process had drawn."""
        if self.draws:
            with self._given_up():
                self.stream.write("\n")

    def emit(self, record: logging.LogRecord) -> None:
        """Show a line above the drawn one; `handle` has the lock."""
        if self._line is None:
            super().emit(record)
        elif not getattr(record, "is_live", False):
            with self._given_up():
                self._line.print(self.format(record))

    @contextmanager
    def _given_up(self) -> Iterator[None]:
        """Stop drawing if that fails: a closed terminal must not end the training."""
        try:
            yield
        except Exception:  # noqa: BLE001  rich's, the terminal's, or no thread to be had
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
        """Leave the terminal as it was."""
        self.hide()
        super().close()

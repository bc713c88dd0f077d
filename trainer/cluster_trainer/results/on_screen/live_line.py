"""A line of a terminal that shows the progress of a run; `rich` draws it."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from cluster_trainer.results.on_screen.progress import Progress

TIMES_A_SECOND = 2
BAR_WIDTH = 10


class _Console(Console):
    """A terminal whose cursor is not hidden: a killed process could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002  rich's
        """Leave the cursor visible."""
        return False


class _Facts(ProgressColumn):
    """Cuts a text to the width of the terminal."""

    def render(self, task: Task) -> Text:
        """Return the text as one line."""
        return Text("  ".join(task.fields["facts"]), no_wrap=True, overflow="ellipsis")


class LiveLine:
    """The line, from its first drawing to its end."""

    def __init__(self) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(BAR_WIDTH),
            TextColumn("{task.fields[steps]}", markup=False),
            _Facts(),
            console=_Console(),
            refresh_per_second=TIMES_A_SECOND,
            transient=True,
        )
        self._task: Any = None

    def show(self, progress: Progress) -> None:
        """Show the new progress."""
        is_training = progress.what == "training"
        shown: dict[str, Any] = {
            "description": f"epoch {progress.epoch}/{progress.epochs}",
            "completed": progress.done,
            "total": progress.total,
            "steps": f"{progress.done}/{progress.total or '?'}" if is_training else progress.what,
            "facts": progress.facts,
        }
        if self._task is None:
            self._task = self._bars.add_task(**shown)
            self._bars.start()
        else:
            self._bars.update(self._task, **shown)

    def print(self, text: str) -> None:
        """Print a text above the line."""
        self._bars.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def end(self) -> None:
        """Remove the line."""
        self._bars.stop()

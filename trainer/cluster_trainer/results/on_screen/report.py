"""The output of a run: log lines for people, metrics.jsonl and result.json for programs."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_trainer.files import write_whole
from cluster_trainer.results import metrics_file
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.metrics_file import MetricsFile
from cluster_trainer.results.on_screen.progress import LiveFile, Progress, shown
from cluster_trainer.results.on_screen.screen import LIVE, OWN, OneVoice, Screen
from cluster_trainer.settings.view import View, is_terminal

PROGRESS_SECONDS = 10.0
RESULT_FILE = "result.json"
LOG_FILE = "train.log"
log = logging.getLogger("trainer")


def start_log(worker: str, folder: Path | None = None, view: View | None = None) -> Screen:
    """Log to the standard output and to train.log in `folder`, each line with the worker's name.

    The entrypoint's lines have the same format, which it recognises when it turns lines into JSON.
    A run that resumes appends to the same train.log, which has all lines. On workers other than the
    chief, lines that the chief also prints have the level DEBUG. Their screens omit these lines,
    unless there is no train.log.
    """
    view = view or View()
    form = logging.Formatter(f"%(asctime)s %(levelname)s {worker} %(message)s", "%H:%M:%S")
    for handler in [*log.handlers]:  # those of an earlier run in this process
        log.removeHandler(handler)
        handler.close()
    log.filters.clear()
    if not view.is_chief:
        log.addFilter(OneVoice())
    screen = Screen(view, is_kept=folder is not None)
    for handler in (screen, _LogFile(folder / LOG_FILE)) if folder else (screen,):
        handler.setFormatter(form)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    # TensorFlow gives the root logger a handler, which would repeat every line.
    log.propagate = False
    return screen


class _LogFile(logging.FileHandler):
    """A log file that drops lines while the disk is full: they are on the screen, too."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Ignore an error of the disk; print any other as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class Reporter:
    """One worker's results in its own folder, and its lines in the log.

    Attributes:
        lines: the epochs' metrics, as last reported.
    """

    def __init__(
        self,
        folder: Path,
        epochs: int,
        screen: Screen | None = None,
        live: LiveFile | None = None,
    ) -> None:
        self.folder, self._epochs = folder, epochs
        self._screen, self._live = screen or Screen(), live or LiveFile(None)
        self.journal, self._metrics = Journal(folder), MetricsFile(folder)
        self.on_up: Callable[[], object] = lambda: None
        self.on_asking: Callable[[], object] = lambda: None
        self._started = self._last_line = time.monotonic()
        self._doing: tuple[str, Mapping[str, bool]] = ("starting", {})
        self._ended = threading.Event()
        self._trained: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.lines: Sequence[Mapping[str, Any]] = []
        self._result: dict[str, Any] = {
            "dataset": None,
            "optimizer": None,
            "loss": None,
            "strategy": None,
            "replicas": None,
            "resumed_from_step": None,
            "steps": 0,
            "epochs": 0,
            "metrics": None,
            "weights_sha256": None,
        }

    def clear(self) -> None:
        """Remove the results of an earlier run, which must not look like this one's."""
        self._live.remove()
        (self.folder / RESULT_FILE).unlink(missing_ok=True)

    def doing(self, what: str, *, is_own: bool = False) -> None:
        """Note the run's activity; the heartbeat logs it after some silence.

        Args:
            what: the activity, in words.
            is_own: whether this worker's activity may differ from the chief's.
        """
        self._doing = (what, OWN if is_own else {})
        self._screen.hide()
        self._live.remove()

    def progress(self, progress: Progress) -> None:
        """Note the progress of the run; a terminal shows it at once."""
        self._result["steps"] = progress.step
        self._doing = (str(progress), LIVE)
        self._screen.show(progress)
        self._live.write(progress)

    def asks_for_ring(self) -> None:
        """Note that the entrypoint is asked for the other workers: it now logs the wait."""
        self.on_asking()

    def cluster_is_up(self) -> None:
        """Note that all workers are there, and begin to log this process's activity."""
        self.on_up()
        self.journal.note("starting", "loading the data, building the model")
        self.start_heartbeat()

    def read_back(self) -> None:
        """Take over the report of a child process that could not finish it."""
        self._screen.begin_anew()
        file = self.folder / metrics_file.FILE
        lines = file.read_text().splitlines() if file.exists() else []
        for line in reversed(lines):
            try:
                last = json.loads(line)
            except ValueError:  # cut off, by a full disk
                continue
            self._result |= {"steps": last["step"], "epochs": last["epoch"], "metrics": last}
            return

    def start_heartbeat(self) -> None:
        """Log the run's activity whenever it was silent for PROGRESS_SECONDS.

        A thread does this, because one step, or tracing a large model, may take longer.
        """
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        while not self._ended.wait(self._last_line + PROGRESS_SECONDS - time.monotonic()):
            if time.monotonic() - self._last_line >= PROGRESS_SECONDS:
                self._last_line = time.monotonic()
                what, extra = self._doing
                log.info("%s", what, extra=extra)

    def begin(self, step: int) -> None:
        """Note the step at which the run begins; `epochs` reports the epochs before it."""
        self._result |= {"resumed_from_step": step or None, "steps": step}
        if not step:
            self._note([])

    def epochs(self, lines: Sequence[Mapping[str, Any]], is_new: bool) -> None:  # noqa: FBT001
        """Report the epochs so far to metrics.jsonl, and print the last if it is new."""
        self._note(lines)
        if is_new:
            self._last_line = time.monotonic()
            log.info("%s", describe(lines[-1], self._epochs))

    def _note(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.lines = lines
        if lines:
            self._result |= {"epochs": lines[-1]["epoch"], "metrics": lines[-1]}
        self._metrics.note(lines)

    def step(self, step: int) -> None:
        """Note that `step` steps of training are done."""
        self._result["steps"] = step

    def dataset(self, name: str) -> None:
        """Note the data set: its name with the version, and whether it is a sample."""
        self._result["dataset"] = name

    def used(self, what: Mapping[str, Any]) -> None:
        """Note the optimizer, the loss and the strategy."""
        self._result |= what

    def settings(self, trained: Mapping[str, Any]) -> None:
        """Note the settings that are really used."""
        self._trained = {"settings": trained}

    def weights(self, digest: str) -> None:
        """Note the digest of the final weights."""
        self._result["weights_sha256"] = digest

    def finish(self, status: str, reason: str | None, context: Mapping[str, Any]) -> None:
        """Write result.json, completely or not at all; `context` has its other members.

        Only the first call counts: the thread that ends a stalled run may meet the run's own end.
        """
        self._ended.set()
        self._screen.hide()
        self._live.remove()
        if not self._lock.acquire(blocking=False):
            return
        self.journal.note(status, reason or "")
        seconds = round(time.monotonic() - self._started, 3)
        more = {"seconds": seconds, **context, **self._trained}
        result = {"status": status, "reason": reason, **self._result, **more}
        text = json.dumps(result, indent=2, default=str) + "\n"
        write_whole(self.folder / RESULT_FILE, text.encode(), durable=True)


class Onlooker:
    """Reports the progress of a script's fit: in a file, and in log lines at intervals.

    Only the chief logs, and not to a terminal that can redraw a line.

    Args:
        live: gets the progress.
        view: tells whether this worker is the chief, and may draw.
    """

    def __init__(self, live: LiveFile, view: View) -> None:
        self._live = live
        self._says = view.is_chief and not (view.may_draw and is_terminal(sys.stdout))
        self._last_line = time.monotonic()

    def progress(self, progress: Progress) -> None:
        """Report the progress of the fit."""
        self._live.write(progress)
        if self._says and time.monotonic() >= self._last_line + PROGRESS_SECONDS:
            self._last_line = time.monotonic()
            log.info("%s", progress)


def describe(line: Mapping[str, Any], epochs: int) -> str:
    """Return an epoch's numbers as one line; the lines of all epochs align."""
    width = len(str(epochs))
    parts = [f"epoch {line['epoch']:{width}}/{epochs}", f"step {line['step']}"]
    parts += [
        f"{name.replace('_', ' ')} {shown(value)}"
        for name, value in line.items()
        if name not in metrics_file.COUNTS
    ]
    if "examples_per_second" in line:
        parts.append(f"{line['examples_per_second']:,.0f} examples/s")
    return "  ".join([*parts, f"{line['seconds']:.1f} s"])

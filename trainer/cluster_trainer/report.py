"""What a run tells: log lines for people, metrics.jsonl and result.json for programs."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster_trainer.files import write_whole

PROGRESS_SECONDS = 10.0
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
LOG_FILE = "train.log"
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class EpochMetrics:
    """One line of metrics.jsonl. Losses are means of an example, accuracies shares of 1."""

    epoch: int
    step: int
    loss: float
    accuracy: float
    test_loss: float
    test_accuracy: float
    test_examples: int
    examples_per_second: float
    seconds: float


def start_log(worker: str, folder: Path | None = None) -> None:
    """Log to the standard output and to train.log in `folder`, each line with the worker's name.

    The entrypoint's lines have the same form, and it knows it again where it makes JSON of lines.
    A run that goes on goes on in the same train.log.
    """
    form = logging.Formatter(f"%(asctime)s %(levelname)s {worker} %(message)s", "%H:%M:%S")
    log.handlers.clear()  # those of an earlier run in this process
    screen = logging.StreamHandler(sys.stdout)
    for handler in (screen, _LogFile(folder / LOG_FILE)) if folder else (screen,):
        handler.setFormatter(form)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    # TensorFlow gives the root logger a handler of its own, which would repeat every line.
    log.propagate = False


class _LogFile(logging.FileHandler):
    """A log file whose lines are left out while the disk is full: they are on the screen, too."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Let an error of the disk pass; print any other as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class Reporter:
    """One worker's results in its own folder, and its lines in the log."""

    def __init__(self, folder: Path, epochs: int) -> None:
        self.folder, self._epochs = folder, epochs
        self.on_up: Callable[[], object] = lambda: None
        self._started = self._last_line = time.monotonic()
        self._doing = "starting"
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._metrics: list[EpochMetrics] = []
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
        # What an earlier run left here must not pass for this one's.
        (folder / RESULT_FILE).unlink(missing_ok=True)

    def doing(self, what: str) -> None:
        """Note what the run is at; the heartbeat says it once nothing else was said for a while."""
        self._doing = what

    def cluster_is_up(self) -> None:
        """Note that all workers are there: from now on this process can speak for itself."""
        self.on_up()
        self.start_heartbeat()

    def read_back(self) -> None:
        """Take over what another process, which could not finish, had reported."""
        file = self.folder / METRICS_FILE
        lines = file.read_text().splitlines() if file.exists() else []
        if lines:
            last = json.loads(lines[-1])
            self._result |= {"steps": last["step"], "epochs": last["epoch"], "metrics": last}

    def start_heartbeat(self) -> None:
        """Say what the run is at whenever it was silent for PROGRESS_SECONDS.

        A thread does this, since one step, or the tracing of a large model, may take longer.
        """
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        while not self._ended.wait(self._last_line + PROGRESS_SECONDS - time.monotonic()):
            if time.monotonic() - self._last_line >= PROGRESS_SECONDS:
                self._last_line = time.monotonic()
                log.info("%s", self._doing)

    def begin(self, step: int, epochs: Sequence[EpochMetrics]) -> None:
        """Note where the run begins: at which step, and the epochs that it has behind it."""
        self._metrics = list(epochs)
        self._result |= {"resumed_from_step": step or None, "steps": step}
        self._note_metrics()

    def epoch(self, metrics: EpochMetrics) -> None:
        """Report a finished epoch, to people and to metrics.jsonl."""
        self._last_line = time.monotonic()
        self._metrics.append(metrics)
        self._note_metrics()
        log.info("%s", describe(metrics, self._epochs))

    def _note_metrics(self) -> None:
        """Write metrics.jsonl anew: it is small, and so it is whole after any interruption."""
        lines = [json.dumps(asdict(metrics)) + "\n" for metrics in self._metrics]
        if self._metrics:
            last = self._metrics[-1]
            self._result |= {"epochs": last.epoch, "metrics": asdict(last)}
        try:
            write_whole(self.folder / METRICS_FILE, "".join(lines).encode(), durable=False)
        except OSError as error:
            log.warning("%s could not be written: %s", METRICS_FILE, error)

    def step(self, step: int) -> None:
        """Note that `step` steps of training are behind us."""
        self._result["steps"] = step

    def dataset(self, name: str) -> None:
        """Note what is trained on: the name with the version, and whether it is a sample."""
        self._result["dataset"] = name

    def used(self, what: Mapping[str, Any]) -> None:
        """Note what is trained with: the optimizer, the loss, the strategy."""
        self._result |= what

    def weights(self, digest: str) -> None:
        """Note the digest of the final weights."""
        self._result["weights_sha256"] = digest

    def finish(self, status: str, reason: str | None, context: Mapping[str, Any]) -> None:
        """Write result.json, whole or not at all; `context` is what else belongs into it.

        Only the first call counts: the thread that ends a stuck run may meet the run's own end.
        """
        self._ended.set()
        if not self._lock.acquire(blocking=False):
            return
        seconds = round(time.monotonic() - self._started, 3)
        result = {"status": status, "reason": reason, **self._result, "seconds": seconds, **context}
        text = json.dumps(result, indent=2, default=str) + "\n"
        write_whole(self.folder / RESULT_FILE, text.encode(), durable=True)


def describe(metrics: EpochMetrics, epochs: int) -> str:
    """Return an epoch as one line that a person can read down a column."""
    width = len(str(epochs))
    return (
        f"epoch {metrics.epoch:{width}}/{epochs}  step {metrics.step}"
        f"  loss {metrics.loss:.4f}  accuracy {metrics.accuracy:.4f}"
        f"  test loss {metrics.test_loss:.4f}  test accuracy {metrics.test_accuracy:.4f}"
        f"  {metrics.examples_per_second:,.0f} examples/s  {metrics.seconds:.1f} s"
    )

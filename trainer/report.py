"""What a run tells: log lines for people, metrics.jsonl and result.json for programs."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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


def start_log(folder: Path, worker: str) -> None:
    """Log to the standard output and to train.log in `folder`, each line with the worker's name.

    The entrypoint's lines have the same form, and it knows it again where it makes JSON of lines.
    """
    form = logging.Formatter(f"%(asctime)s %(levelname)s {worker} %(message)s", "%H:%M:%S")
    for handler in (logging.StreamHandler(sys.stdout), logging.FileHandler(folder / LOG_FILE, "w")):
        handler.setFormatter(form)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    # TensorFlow gives the root logger a handler of its own, which would repeat every line.
    log.propagate = False


class Reporter:
    """One worker's results in its own folder, and its lines in the log."""

    def __init__(self, folder: Path, epochs: int) -> None:
        self.folder, self._epochs = folder, epochs
        self.on_up: Callable[[], object] = lambda: None
        self._started = self._last_line = time.monotonic()
        self._doing = "starting"
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._result: dict[str, Any] = {"steps": 0, "epochs": 0, "metrics": None}
        self._result["weights_sha256"] = None
        # What an earlier run left here must not pass for this one's.
        (folder / METRICS_FILE).write_text("")
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
        lines = (self.folder / METRICS_FILE).read_text().splitlines()
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

    def epoch(self, metrics: EpochMetrics) -> None:
        """Report a finished epoch, to people and to metrics.jsonl."""
        self._last_line = time.monotonic()
        self._result |= {"epochs": metrics.epoch, "metrics": asdict(metrics)}
        with (self.folder / METRICS_FILE).open("a") as file:
            file.write(json.dumps(asdict(metrics)) + "\n")
        log.info("%s", describe(metrics, self._epochs))

    def step(self, step: int) -> None:
        """Note that `step` steps of training are behind us."""
        self._result["steps"] = step

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
        unfinished = self.folder / f".unfinished.{RESULT_FILE}"
        unfinished.write_text(json.dumps(result, indent=2) + "\n")
        unfinished.replace(self.folder / RESULT_FILE)


def describe(metrics: EpochMetrics, epochs: int) -> str:
    """Return an epoch as one line that a person can read down a column."""
    width = len(str(epochs))
    return (
        f"epoch {metrics.epoch:{width}}/{epochs}  step {metrics.step}"
        f"  loss {metrics.loss:.4f}  accuracy {metrics.accuracy:.4f}"
        f"  test loss {metrics.test_loss:.4f}  test accuracy {metrics.test_accuracy:.4f}"
        f"  {metrics.examples_per_second:,.0f} examples/s  {metrics.seconds:.1f} s"
    )

"""Writes checkpoints while training continues, so that steps do not wait for the disk."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster_trainer.checkpoints.checkpoint import Checkpoint, Stage
from cluster_trainer.checkpoints.store import Store

FOLLOWED_SECONDS = 1.0
log = logging.getLogger("trainer")


class Saver:
    """Writes one checkpoint at a time, in the order in which they are given.

    A failure, such as a full or broken disk, only causes a warning: the older checkpoints remain,
    and the next one is tried again.

    Args:
        store: the destination.
        on_saved: called after each that was written, with its number.

    Attributes:
        newest: the step of the last one that was written; None before the first.
        newest_seconds: how long that took.
    """

    def __init__(self, store: Store, on_saved: Callable[[int], object]) -> None:
        self.newest: int | None = None
        self.newest_seconds = 0.0
        self._store, self._on_saved = store, on_saved
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")
        self._pending: Future[None] | None = None
        self._held = _Held()

    @property
    def is_busy(self) -> bool:
        """Whether one is being written, with its arrays in memory; the next would have to wait."""
        is_over = self._pending is None or self._pending.done()
        return not is_over and self._held.is_decided

    def make_room(self) -> None:
        """Drop a checkpoint that another follows, or wait for it if writing has begun."""
        self._held.drop()
        self.wait()

    def save(self, checkpoint: Checkpoint, *, another_follows: bool = False) -> None:
        """Begin to write a checkpoint, once the previous one is done.

        Args:
            checkpoint: of the present place.
            another_follows: whether the next is expected before long. If it comes within
                FOLLOWED_SECONDS it takes the place of this one, which is not written.
        """
        self.make_room()
        self._held = _Held()
        if not another_follows:
            self._held.release()
        self._begin(checkpoint.step, self._write, checkpoint, self._held)

    def keep(self, number: int, content: bytes) -> None:
        """Begin to write another worker's checkpoint, once the previous one is done.

        Args:
            number: of the checkpoint; see `number_of`.
            content: of its file.
        """
        self.wait()
        self._held = _Held()
        self._held.release()
        self._begin(number // len(Stage), self._keep, number, content)

    def wait(self) -> None:
        """Wait until nothing is left to write."""
        if self._pending:
            self._held.release()
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        """Wait as well, and write nothing afterwards."""
        self.wait()
        self._thread.shutdown()

    def _begin(self, step: int, write: Callable[..., None], *given: Any) -> None:
        def guarded() -> None:
            try:
                write(*given)
            except Exception as error:  # noqa: BLE001  no checkpoint is worth a training
                warn_unsaved(step, error)

        try:
            self._pending = self._thread.submit(guarded)
        except RuntimeError as error:  # no thread can be started
            warn_unsaved(step, error)

    def _write(self, checkpoint: Checkpoint, held: "_Held") -> None:
        if not held.is_to_be_written():
            return
        began = time.monotonic()
        self._store.stream(checkpoint.number, checkpoint.write)
        self.newest_seconds = time.monotonic() - began
        self.newest = checkpoint.step
        self._on_saved(checkpoint.number)

    def _keep(self, number: int, content: bytes) -> None:
        self._store.write(number, content)


class _Held:
    def __init__(self) -> None:
        self._decided, self._is_dropped = threading.Event(), False
        self._lock = threading.Lock()

    @property
    def is_decided(self) -> bool:
        """Whether it is decided whether the checkpoint is written."""
        return self._decided.is_set()

    def drop(self) -> None:
        """Do not write it, unless it was released, or writing has begun."""
        with self._lock:
            self._is_dropped |= not self.is_decided
            self._decided.set()

    def release(self) -> None:
        """Write it now, unless it was dropped before."""
        self._decided.set()

    def is_to_be_written(self) -> bool:
        """Wait for the decision, at most FOLLOWED_SECONDS."""
        self._decided.wait(FOLLOWED_SECONDS)
        with self._lock:
            self._decided.set()
            return not self._is_dropped


def warn_unsaved(step: int, error: Exception) -> None:
    """Log that a checkpoint is missing here, and that the run continues."""
    log.warning(
        "the checkpoint of step %d could not be saved: %s; training continues, older checkpoints "
        "remain",
        step,
        error if isinstance(error, OSError) else repr(error),
    )


def touch(path: Path) -> None:
    """Change a file's modification time; create the file if necessary.

    The entrypoint watches it (PROGRESS_FILE). The file also grows, so that two touches within one
    tick of a coarse clock are distinguishable.
    """
    try:
        with path.open("a") as file:
            file.write(f"{time.time():.6f}\n")
    except OSError as error:
        log.warning("PROGRESS_FILE %s cannot be written: %s", path, error.strerror)

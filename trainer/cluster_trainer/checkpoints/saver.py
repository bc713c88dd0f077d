"""Writes checkpoints in a thread, so that steps do not wait for the disk."""

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

    A failure, such as a full or broken disk, only causes a warning. The older checkpoints remain,
    and the next checkpoint is tried again.

    Args:
        store: the destination.
        on_saved: is called after each `save` that was written, with the checkpoint's number.

    Attributes:
        newest: the step of the last checkpoint of a `save` that was written; None: there is none.
        newest_seconds: how long its writing took, in seconds.
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
        """Whether a checkpoint is being written, so that the next would have to wait for it."""
        is_over = self._pending is None or self._pending.done()
        return not is_over and self._held.is_decided

    def make_room(self) -> None:
        """Drop a checkpoint saved with `another_follows`; if its writing has begun, wait for it."""
        self._held.drop()
        self.wait()

    def save(self, checkpoint: Checkpoint, *, another_follows: bool = False) -> None:
        """Begin to write a checkpoint, after waiting for the previous one.

        Args:
            checkpoint: the checkpoint.
            another_follows: whether the next one is expected soon. If it comes within
                FOLLOWED_SECONDS, it replaces this one, which is not written.
        """
        self.make_room()
        self._held = _Held()
        if not another_follows:
            self._held.release()
        self._begin(checkpoint.step, self._write, checkpoint, self._held)

    def keep(self, number: int, content: bytes) -> None:
        """Begin to write another worker's checkpoint, after waiting for the previous one.

        Args:
            number: the checkpoint's number; see `number_of`.
            content: the bytes of its file.
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
        """Wait until nothing is left to write, and accept nothing more."""
        self.wait()
        self._thread.shutdown()

    def _begin(self, step: int, write: Callable[..., None], *given: Any) -> None:
        def guarded() -> None:
            try:
                write(*given)
            except Exception as error:  # noqa: BLE001  a failed checkpoint must not end the training
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
        """Whether the checkpoint was released or dropped."""
        return self._decided.is_set()

    def drop(self) -> None:
        """Drop the checkpoint, unless it was released, or writing has begun."""
        with self._lock:
            self._is_dropped |= not self.is_decided
            self._decided.set()

    def release(self) -> None:
        """Let the checkpoint be written now, unless it was dropped before."""
        self._decided.set()

    def is_to_be_written(self) -> bool:
        """Wait for the decision, at most FOLLOWED_SECONDS; without one, write."""
        self._decided.wait(FOLLOWED_SECONDS)
        with self._lock:
            self._decided.set()
            return not self._is_dropped


def warn_unsaved(step: int, error: Exception) -> None:
    """Warn that a checkpoint could not be saved, and that the run continues."""
    log.warning(
        "the checkpoint of step %d could not be saved: %s; training continues, older checkpoints "
        "remain",
        step,
        error if isinstance(error, OSError) else repr(error),
    )


def touch(path: Path) -> None:
    """Change a file's modification time; create the file if necessary.

    The entrypoint watches it (PROGRESS_FILE). The file also grows, so that two changes within one
    tick of a coarse clock can be distinguished.
    """
    try:
        with path.open("a") as file:
            file.write(f"{time.time():.6f}\n")
    except OSError as error:
        log.warning("PROGRESS_FILE %s cannot be written: %s", path, error.strerror)

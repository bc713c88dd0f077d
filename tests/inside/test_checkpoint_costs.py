"""The costs of checkpoints of a large state: memory, and time on a slow disk."""

import threading
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from keeping import fits_run_by

from cluster_trainer.checkpoints import store
from cluster_trainer.checkpoints.saver import Saver
from cluster_trainer.fits.kept import checkpoint_callback
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task

PAGE = 4096
LAYERS = 8
COPIES = 3  # the weights, and Adam's two slots for each
IS_BUSY = Saver.is_busy
ROWS = np.ones((64, 4), np.float32)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Highest:
    """The peak memory of this process since the last call of `taken`."""

    def __init__(self):
        self._bytes, self._over = 0, threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self):
        while not self._over.wait(0.002):
            self._bytes = max(self._bytes, resident_bytes())

    def taken(self):
        found, self._bytes = self._bytes, resident_bytes()
        return found

    def end(self):
        self._over.set()


DISK = 30e6
"""Bytes that the slow disk takes in a second."""
UNRELATED = 40e6
"""Bytes by which this process may grow besides; a second copy has at least three times as many."""


class Measures(keras.callbacks.Callback):
    """Measures each epoch, together with the checkpoint at the end of the epoch before."""

    several_batches_a_call = True

    def __init__(self, highest):
        super().__init__()
        self.highest, self.bytes, self.seconds = highest, [], []

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.began = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
        self.bytes.append(self.highest.taken())
        self.seconds.append(time.monotonic() - self.began)


@pytest.fixture
def slow_disk(monkeypatch):
    """Make the disk so slow that a busy machine's own delays hardly count."""
    write = store._Digested.write  # noqa: SLF001

    def slowly(self, piece):
        time.sleep(len(piece) / DISK)
        return write(self, piece)

    monkeypatch.setattr(store._Digested, "write", slowly)  # noqa: SLF001


@pytest.mark.parametrize("megabytes", [120, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.usefixtures("slow_disk")
def test_a_checkpoint_is_one_copy_and_holds_training_up_for_that(tmp_path, monkeypatch, megabytes):
    monkeypatch.setattr(Saver, "is_busy", IS_BUSY)
    monkeypatch.setattr(
        checkpoint_callback, "SHARE", float("inf")
    )  # a checkpoint at each epoch's end, unless the saver is busy
    side = int((megabytes * 1e6 / 4 / COPIES / LAYERS) ** 0.5)
    hidden = [keras.layers.Dense(side, kernel_initializer="zeros") for _ in range(LAYERS + 1)]
    model = keras.Sequential([keras.Input((4,)), *hidden])
    model.compile("adam", "mse")
    job = Job(TrainerConfig(run_dir=tmp_path, checkpoint_steps=10**6), Task())
    kept = KeptFit(FitOptions(job, StopRequest(print), Deadline(), tmp_path / "kept", {}), model)
    highest = Highest()
    measures = Measures(highest)
    targets = np.zeros((64, side), np.float32)
    with fits_run_by(kept.run):
        model.fit(ROWS, targets, batch_size=32, epochs=5, verbose=0, callbacks=[measures])
    highest.end()
    before, *during = measures.bytes  # the first checkpoint is at the end of the first epoch
    state = megabytes * 1e6
    more = (max(during) - before - UNRELATED) / state
    held_up = kept.seconds_held_up()
    print(f"{more:.2f} of the state more, held up {held_up:.2f} s, epochs {measures.seconds}")
    assert more < 1.3
    assert held_up < 0.5 * 2 * state / DISK  # for at least two checkpoints, state / DISK each

"""A profile of chosen steps: which operation takes how long on which device."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.checkpoints.checkpoint import Place

log = logging.getLogger("trainer")
_running: list["Profile"] = []
"""One at most, as TensorFlow has one profiler: that of a fit that was broken off has not ended."""


class Profile(keras.callbacks.Callback):
    """Profiles the calls with some steps, with which the calls begin and end (`FitOptions.cuts`).

    A run that goes on within them is profiled from there on.

    Args:
        folder: below which `plugins/profile` is made, as TensorFlow's tools look for it.
        first: the first step, counted from 1 over all epochs.
        last: the last one.
        place: tells where the run is.
    """

    several_batches_a_call = True

    def __init__(self, folder: Path, first: int, last: int, place: Callable[[], Place]) -> None:
        super().__init__()
        self._folder, self._first, self._last, self._place = folder, first, last, place

    def on_train_begin(self, logs: Any = None) -> None:
        for one in [*_running]:
            one.close()

    @property
    def _is_running(self) -> bool:
        return self in _running

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._end_if_done()
        if not self._is_running and self._first <= self._place().step + 1 <= self._last:
            tf.profiler.experimental.start(str(self._folder))
            _running.append(self)
            log.info("profiling steps %d to %d", self._place().step + 1, self._last)

    def on_test_begin(self, logs: Any = None) -> None:
        self._end_if_done()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._end_if_done()

    def on_train_end(self, logs: Any = None) -> None:
        self.close()

    def _end_if_done(self) -> None:
        if self._place().step >= self._last:
            self.close()

    def close(self) -> None:
        """End it, if it runs: where the fit was broken off, too."""
        if not self._is_running:
            return
        _running.remove(self)
        tf.profiler.experimental.stop()
        log.info("the profile is in %s/plugins/profile", self._folder)

"""Profiles chosen steps: measures how long each operation takes on each device."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.checkpoints.checkpoint import Place

log = logging.getLogger("trainer")
_running: list["Profile"] = []
"""TensorFlow has one profiler. An interrupted fit leaves it running."""


class Profile(keras.callbacks.Callback):
    """Profiles the calls that run the chosen steps; see `FitOptions.cuts`.

    If a run resumes within these steps, the rest of them is profiled.

    Args:
        folder: the folder for the profile. It is written into `plugins/profile` within, where
            TensorFlow's tools expect it.
        first: the first step, counted from 1 over all epochs.
        last: the last step.
        place: returns the run's place.
    """

    several_batches_a_call = True

    def __init__(self, folder: Path, first: int, last: int, place: Callable[[], Place]) -> None:
        super().__init__()
        self._folder, self._first, self._last, self._place = folder, first, last, place
        self._is_due = False

    def on_train_begin(self, logs: Any = None) -> None:
        for one in [*_running]:
            one.close()
        self._is_due = self._place().step < self._first

    @property
    def _is_running(self) -> bool:
        return self in _running

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._end_if_done()
        if not self._is_running and self._first <= self._place().step + 1 <= self._last:
            self._is_due = False
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
        if self._place().step < self._last:
            return
        self.close()
        if self._is_due:
            self._is_due = False
            log.warning(
                "nothing was profiled: calls have whole rounds (TRAINER_SYNC_EVERY), and none "
                "began in steps %d to %d",
                self._first,
                self._last,
            )

    def close(self) -> None:
        """End the profile if it runs; also called after an interrupted fit."""
        if not self._is_running:
            return
        _running.remove(self)
        tf.profiler.experimental.stop()
        log.info("the profile is in %s/plugins/profile", self._folder)

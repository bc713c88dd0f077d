"""Writes down what a script's fit was begun with."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from cluster_trainer.results.about_file import AboutFile


class About(keras.callbacks.Callback):
    """Writes about.json when a fit begins, and anew when it goes on.

    A fit that had ended has no more epochs to begin: what it was trained with is left as it was.

    Args:
        file: is written.
        tell: returns what is to be said.
    """

    several_batches_a_call = True

    def __init__(self, file: AboutFile, tell: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._file, self._tell = file, tell
        self._has_written = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Write it where there is none: it may have been on a disk that was lost."""
        del logs
        if not self._file.exists():
            self._write()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Write it before the first epoch of this start."""
        del epoch, logs
        if not self._has_written:
            self._write()

    def _write(self) -> None:
        self._file.write(self._tell())
        self._has_written = True

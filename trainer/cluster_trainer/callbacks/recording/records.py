"""Records a fit with the image's own callbacks."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from cluster_trainer.callbacks.hook_callback import BATCH_HOOKS, HOOKS
from cluster_trainer.callbacks.recording.epoch_metrics import EpochMetrics
from cluster_trainer.results.about_file import AboutFile

log = logging.getLogger("trainer")


class ClusterTrainerRecords(keras.callbacks.Callback):
    """Calls the callbacks that record a fit, and stops calling a callback that fails.

    The class name is the name of its state in checkpoints. No user's callback should have the same.

    Args:
        make: returns the callbacks, once the fit's data are known.
        is_strict: whether the fit fails if its metrics cannot be computed. If they cannot be
            written to the disk, there is only a warning in any case.
    """

    several_batches_a_call = True
    growing = ("lines",)

    def __init__(
        self, make: Callable[[], Sequence[keras.callbacks.Callback]], *, is_strict: bool = False
    ) -> None:
        super().__init__()
        self._make, self._is_strict = make, is_strict
        # The name of this state in checkpoints of the trainer's runs by earlier versions.
        self.formerly = "EpochMetrics" if is_strict else ""
        self._others: list[Any] = []
        for hook in {*HOOKS, *BATCH_HOOKS} - {"on_train_begin"}:
            setattr(self, hook, self._calling(hook))

    def on_train_begin(self, logs: Any = None) -> None:
        try:
            self._others = [*self._make()]
        except Exception as error:
            if self._is_strict and not isinstance(error, OSError):
                raise
            _warn("What records the fit", error)
        self._call("set_params", self.params)
        self._call("set_model", self.model)
        self._call("on_train_begin", logs)

    def get_state(self) -> Mapping[str, Any] | None:
        """Return the state of the only callback that has one; None: there is none."""
        return next(iter(self._call("get_state")), None)

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._call("set_state", state)

    def close(self) -> None:
        """Release the resources of an interrupted fit."""
        self._call("close")
        self._others.clear()

    def _calling(self, hook: str) -> Callable[..., None]:
        def call(*arguments: Any, **keywords: Any) -> None:
            self._call(hook, *arguments, **keywords)

        return call

    def _call(self, hook: str, *arguments: Any, **keywords: Any) -> list[Any]:
        """Call a method of the callbacks that have it; return the results; drop those that fail."""
        returned = []
        for one in [*self._others]:
            if (method := getattr(one, hook, None)) is None:
                continue
            try:
                returned.append(method(*arguments, **keywords))
            except Exception as error:
                is_disk = isinstance(error, OSError)
                if self._is_strict and isinstance(one, EpochMetrics) and not is_disk:
                    raise
                self._others.remove(one)
                _warn(type(one).__name__, error)
        return returned


class About(keras.callbacks.Callback):
    """Writes the description of a script's fit when it begins, and again when it resumes.

    A finished fit begins no epoch, so its file stays as it was.

    Args:
        file: the file to write.
        tell: returns the description.
    """

    several_batches_a_call = True

    def __init__(self, file: AboutFile, tell: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._file, self._tell = file, tell
        self._has_written = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Write the file if it is missing, for example after the loss of a disk."""
        if not self._file.exists():
            self._write()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._has_written:
            self._write()

    def _write(self) -> None:
        self._file.write(self._tell())
        self._has_written = True


def _warn(what: str, error: Exception) -> None:
    log.warning(
        "%s failed, and records nothing more of this fit: %s: %s; training continues",
        what,
        type(error).__name__,
        error,
    )

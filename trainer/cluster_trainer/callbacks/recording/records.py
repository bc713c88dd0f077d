"""What records a fit: callbacks of the image's own. The fit goes on if one of them fails."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

log = logging.getLogger("trainer")


class ClusterTrainerRecords(keras.callbacks.Callback):
    """Calls others that record a fit; one that fails is called no more, and the fit goes on.

    Its name is that of its state in checkpoints, where no callback of a user's own has the same.

    Args:
        make: returns them, once the fit's data are known.
        formerly: the name of their state in checkpoints of earlier versions.
    """

    several_batches_a_call = True
    growing = ("lines",)

    def __init__(
        self, make: Callable[[], Sequence[keras.callbacks.Callback]], formerly: str = ""
    ) -> None:
        super().__init__()
        self._make, self.formerly = make, formerly
        self._others: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to record."""
        try:
            self._others = [*self._make()]
        except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
            _warn("What records the fit", error)
        self._call("set_params", self.params)
        self._call("set_model", self.model)
        self._call("on_train_begin", logs)

    def on_train_end(self, logs: Any = None) -> None:
        """End."""
        self._call("on_train_end", logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin an epoch."""
        self._call("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End an epoch."""
        self._call("on_epoch_end", epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a call."""
        self._call("on_train_batch_begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a call."""
        self._call("on_train_batch_end", batch, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin an evaluation."""
        self._call("on_test_begin", logs)

    def on_test_end(self, logs: Any = None) -> None:
        """End an evaluation."""
        self._call("on_test_end", logs)

    def get_state(self) -> Mapping[str, Any] | None:
        """Return what a fit that goes on needs: that of the one that has a state."""
        return next(iter(self._call("get_state")), None)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was called."""
        self._call("set_state", state)

    def close(self) -> None:
        """Let go of what would outlive a fit that was broken off."""
        self._call("close")
        self._others.clear()

    def _call(self, hook: str, *arguments: Any) -> list[Any]:
        """Call a method of those that have it; return what they do."""
        returned = []
        for one in [*self._others]:
            if (method := getattr(one, hook, None)) is None:
                continue
            try:
                returned.append(method(*arguments))
            except Exception as error:  # noqa: BLE001  as above
                self._others.remove(one)
                _warn(type(one).__name__, error)
        return returned


def _warn(what: str, error: Exception) -> None:
    log.warning(
        "%s failed, and records nothing more of this fit: %s: %s; training goes on",
        what,
        type(error).__name__,
        error,
    )

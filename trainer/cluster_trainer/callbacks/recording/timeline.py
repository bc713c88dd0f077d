"""Records when a fit trains and evaluates, and how its time is spent."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import keras

from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.engine.steps import waits_of


class Book(Protocol):
    """The journal."""

    def note(self, state: str, detail: str = "", **more: Any) -> None:
        """Note that the worker's activity is `state` from now on."""

    def epoch(self, epoch: int, step: int, seconds: dict[str, float]) -> None:
        """Note how the seconds of a finished epoch were spent."""

    def network(self, reason: str) -> None:
        """Note why the network limits training from now on; "" if it no longer does."""


class Timeline(keras.callbacks.Callback):
    """Notes where training, evaluation and each epoch begin and end.

    The seconds of an epoch are divided into:

    - `first_call`: the first call of this start, mostly TensorFlow's compilation;
    - `calls`: all other calls, including the waits for input and for other workers;
    - `evaluating`;
    - `checkpoints`: the time for which checkpoints delayed training;
    - `all`: the sum of these and of everything else, such as callbacks, and the workers' exchange
      after each call;
    - `input` and `sums`, if they are measured (`engine/waits.py`): the parts of `calls` in which
      steps waited for input, and for the sums of gradients.

    If a run resumes within an epoch, the times are counted from there.

    Args:
        book: gets the notes.
        place: returns the run's place.
        held_up: returns for how many seconds checkpoints have delayed this fit.
        start: returns a text about the step at which a script's fit begins. It is noted before the
            first epoch, and the end of the fit is noted, too. None: the fit's program notes both.
        network: returns why the network limits training; "" if it does not.
    """

    several_batches_a_call = True

    def __init__(
        self,
        book: Book,
        place: Callable[[], Place],
        held_up: Callable[[], float],
        start: Callable[[], str] | None = None,
        network: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__()
        self._start, self._network, self._is_limited = start, network, False
        self._book, self._place, self._held_up = book, place, held_up
        self._epoch_began = self._call_began = self._test_began = 0.0
        self._held_up_before = 0.0
        self._has_called = False
        self._waits: Mapping[str, float] | None = None  # once the first call is over
        self._has_begun = False
        self._seconds: dict[str, float] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        self._epoch_began = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._start and not self._has_begun:
            self._book.note("starting", self._start())
        self._has_begun = True
        self._book.note("training", epoch=epoch + 1, step=self._place().step)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._call_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._count(
            "calls" if self._has_called else "first_call", time.monotonic() - self._call_began
        )
        if not self._has_called:  # waits within the first call are a part of it
            self._waits = waits_of(self.model)
        self._has_called = True
        self._note_network()

    def on_test_begin(self, logs: Any = None) -> None:
        self._test_began = time.monotonic()
        self._book.note("evaluating", step=self._place().step)

    def on_test_end(self, logs: Any = None) -> None:
        self._count("evaluating", time.monotonic() - self._test_began)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        now, held_up = time.monotonic(), self._held_up()
        self._count_waits()
        self._count("checkpoints", held_up - self._held_up_before)
        self._count("all", now - self._epoch_began)
        self._book.epoch(epoch + 1, self._place().step, self._seconds)
        self._epoch_began, self._held_up_before, self._seconds = now, held_up, {}

    def on_train_end(self, logs: Any = None) -> None:
        if self._start and self._has_begun:
            self._book.note("running", "the fit is done")

    def _note_network(self) -> None:
        """Note when the network becomes the limit, and when it no longer is."""
        reason = self._network()
        if bool(reason) != self._is_limited:
            self._book.network(reason)
        self._is_limited = bool(reason)

    def _count_waits(self) -> None:
        if self._waits is None:  # no call yet: only the evaluation of the epoch was left
            return
        before, self._waits = self._waits, waits_of(self.model)
        for name, seconds in self._waits.items():
            self._count(name, seconds - before.get(name, 0.0))

    def _count(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

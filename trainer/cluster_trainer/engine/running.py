"""Passes information about a running `fit`, `evaluate` or `predict` to the engine's parts.

Keras calls these parts, and passes them nothing about the call that they belong to.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import keras
from keras.callbacks import Callback

from cluster_trainer.engine.data.again import Again
from cluster_trainer.engine.data.given_arrays import GivenArrays
from cluster_trainer.engine.data.same_data import reading_ends
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.private import keras_names

NOT_A_USERS = ("keras.", "cluster_trainer.")
TEST_HOOKS = ("on_test_batch_begin", "on_test_batch_end")
BEGINNING_HOOKS = ("set_model", "set_params", "on_train_begin")
PREPARING_HOOKS = (
    *BEGINNING_HOOKS,
    "on_epoch_begin",
    "on_batch_begin",
    "on_train_batch_begin",
)
FIT_HOOKS = (
    "on_batch_begin",
    "on_batch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    *TEST_HOOKS,
)


@dataclass(frozen=True)
class Order:
    """The order of a fit's examples, and the division of its steps into calls of TensorFlow.

    Attributes:
        seed: the seed of the order in which examples are seen.
        steps_a_call: the number of steps in a call; None: as many as take about a second.
        goes_on: whether an epoch with more steps than a pass of arrays continues in the next pass.
    """

    seed: int = 0
    steps_a_call: int | None = None
    goes_on: bool = False


@dataclass(frozen=True)
class Watched:
    """Functions from outside of the engine that watch a call of Keras's.

    Attributes:
        checkpoint_callback: saves checkpoints of a fit; None: there are no checkpoints.
        agree: exchanges this worker's seconds for the slowest worker's, and agrees on more in the
            same exchange; None: only the seconds are exchanged.
        meet: raises the exception that ends the fit, if all workers have agreed to end it.
        limit: returns a context that limits the time of a call of TensorFlow.
        traces: is called within that context when TensorFlow traces a step.
        first_batch: the treatment of a fit's first batch; None: the process's default.
    """

    checkpoint_callback: Any = None
    agree: Callable[[float], float] | None = None
    meet: Callable[[], None] = lambda: None
    limit: Callable[..., AbstractContextManager[Any]] = lambda *_, **__: nullcontext()
    traces: Callable[[], None] = lambda: None
    first_batch: FirstBatchMode | None = None


@dataclass
class Running:
    """One call of `fit`, `evaluate` or `predict`: its announcement and its progress.

    Attributes:
        name: the name of the method that the user called.
        order: the order of its steps.
        watched: the functions that watch it.
        one_batch_a_call: whether a callback must be called for each batch.
        is_fit: whether it is a `fit`, or within one.
        is_of_callback: whether a callback has made the call within a fit.
        has_own_functions: whether the model has its own `make_train_function` or the like.
        alike: the models that have the same values on all workers of a ring.
        asked: models whose variables do not all exist on all workers, and which the call need not
            compare again; None: it compares them each time.
        arrays: the arrays of a fit that may begin again; None: it does not.
        has_iterator: whether the fit's own iterator, which is the first, exists.
        done: returns how many steps of the epoch are done; None: unknown.
        again: reads the batches again, from those that failed on, to explain an error; None: it
            cannot.
    """

    name: str = "a loop"
    order: Order = Order()
    watched: Watched = Watched()
    one_batch_a_call: bool = False
    is_fit: bool = False
    is_of_callback: bool = False
    has_own_functions: bool = False
    alike: WeakSet[Any] = field(default_factory=WeakSet)
    asked: WeakSet[Any] | None = None
    arrays: GivenArrays | None = None
    has_iterator: bool = False
    done: Callable[[], int] | None = None
    again: Callable[[], Again | None] = lambda: None

    @property
    def logs_of_epoch(self) -> dict[str, Any]:
        """The logs of an epoch whose steps were done at an earlier start."""
        checkpoint_callback = self.watched.checkpoint_callback
        return checkpoint_callback.logs_of_epoch if checkpoint_callback else {}

    @property
    def arrays_to_train_on(self) -> GivenArrays | None:
        """The arrays for a fit's own iterator; None for later iterators, whose data may change."""
        return None if self.has_iterator else self.arrays

    def adopt(self, iterator: Any) -> Any:
        """Attach the checkpoint callback to the first iterator, which trains, and return it."""
        checkpoint_callback = None if self.has_iterator else self.watched.checkpoint_callback
        self.has_iterator = True
        if checkpoint_callback:
            checkpoint_callback.attach(iterator)
        return checkpoint_callback


class _OfThread(threading.local):
    running: Running | None = None


_of_thread = _OfThread()


def current() -> Running:
    """Return the running call, or defaults for a call that was not announced.

    Such a call belongs to a user's own loop, which takes its batches one by one.
    """
    return _of_thread.running or Running(one_batch_a_call=True)


def is_announced() -> bool:
    """Tell whether a call of Keras's is running, and not a user's own loop."""
    return _of_thread.running is not None


def is_in_fit() -> bool:
    """Tell whether a `fit` is running."""
    return current().is_fit


@contextmanager
def announced(running: Running) -> Iterator[None]:
    """Make a call of Keras's the current one within the context."""
    before, _of_thread.running = _of_thread.running, running
    # The iterator of a fit's validation may be read on in the next epoch.
    reading = nullcontext() if before else reading_ends()
    try:
        with reading:
            yield
    finally:
        _of_thread.running = before


def wants_each_batch(callbacks: Any, hooks: Sequence[str] = FIT_HOOKS) -> list[str]:
    """Return the class names of the callbacks that must be called for each batch.

    Keras's own callbacks may be called once for several batches, unless they are configured
    otherwise. A user's callback allows that with `several_batches_a_call = True`.
    """
    return [
        type(one).__name__
        for one in flat(callbacks)
        if _is_told_to(one)
        or (not getattr(one, "several_batches_a_call", False) and _has_own(one, hooks))
    ]


def prepares(callbacks: Any, hooks: Sequence[str] = PREPARING_HOOKS) -> list[str]:
    """Return the names of a user's callbacks that may prepare the model for its first step."""
    return [type(one).__name__ for one in flat(callbacks) if _has_own(one, hooks)]


def of_a_user(callbacks: Any) -> list[Callback]:
    """Return the given callbacks whose class is the user's own."""
    return [one for one in flat(callbacks) if not type(one).__module__.startswith(NOT_A_USERS)]


def flat(callbacks: Any) -> Sequence[Callback]:
    """Return callbacks, as a user gives them, in one list."""
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    inner = callbacks.callbacks if is_list else callbacks
    return [one for one in keras.tree.flatten(inner) if one is not None]


def _has_own(callback: Any, hooks: Sequence[str]) -> bool:
    """Tell whether a callback has hooks of its own, not defined by Keras or this project.

    The callback's class need not be a subclass of Keras's. A LambdaCallback has its hooks as
    attributes.
    """
    methods = [getattr(callback, hook, None) for hook in hooks]
    return any(one and not str(one.__module__).startswith(NOT_A_USERS) for one in methods)


def _is_told_to(callback: Callback) -> bool:
    if getattr(callback, "save_freq", "epoch") != "epoch":  # callbacks that save the model
        return True
    if isinstance(callback, keras.callbacks.TensorBoard):
        is_for_steps = callback.update_freq != "epoch" or callback.write_steps_per_second
        return bool(is_for_steps or keras_names.is_to_profile(callback))
    return False

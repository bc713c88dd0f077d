"""Holds a replica's data about the step that it computes, such as its part of the global batch."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.waits import Waits
from cluster_trainer.private import at_call, tensorflow_names
from cluster_trainer.problems import Problem

OF_NO_PART = (
    "belongs to no part of the model, so the devices of this machine would share it. Make it an "
    "attribute of the model or of a layer, or train on one device: TRAINER_DEVICES"
)


@dataclass
class Share:
    """One replica's part of a step that several replicas compute together.

    Attributes:
        given_weight: see `weight`. In a script's own function, only `weight` belongs to the present
            step.
        given_is_whole: see `is_whole`; False: it never is.
        is_reduced: whether the running optimizer has the gradients of all replicas, so that each
            replica does the same to its own copies of the variables.
        weighted: the optimizers whose losses were multiplied by the weight in this step, so that
            their gradients need only be summed.
        summed_backwards: in each backward pass through a layer's sum over replicas, whether the
            losses were assumed to be multiplied by the weight.
        trained: the `id`s of this replica's copies of the variables that optimizers were given.
        gathers: whether rows of sparse gradients are gathered from all replicas.
        applies: whether optimizers apply gradients. They do not if a step is only traced, for
            example to explain an error.
        waits: measures the time spent waiting for gradients; None: it is not measured.
        rows: the numbers of rows of the share's parts, as known when a step is traced; None stands
            for an unknown number.
        are_even: whether all shares certainly have the same number of examples.
        scalars_differ: whether the batch's scalars differ between replicas.
        apart: the seeds that differ between replicas.
        seed_states: the states of the seed generators that the step has drawn from.
        assigned: the copies of variables that the step has assigned outside of optimizers, by the
            `id` of their handles. Each has its value from before the step if that runs eagerly.
        moves: how often the step has assigned each of them, by the `id` of its handle.
        unforeseen: variables of no layer that the step's next trace has to know beforehand; see
            state/own_state.py.
        first_batch: notes the results while the first batch is computed both ways, and nothing is
            applied; None: this is an ordinary step.
        is_own_step: whether the worker takes this step by itself, from its own share's gradients;
            see rounds.py.
        optimizers: the optimizers that were given gradients, by `id`.
        problems: the reasons why a worker cannot take the step by itself.
        prepare: is called in the body of a script's own loop before an optimizer applies gradients,
            with the optimizer and its variables; None: this is one of the engine's steps.
        results: the values that metrics have returned in the step, by `id`; see noted_results.py.
        graph: the graph in which the step was begun; None: it runs eagerly.
    """

    given_weight: tf.Tensor
    given_is_whole: tf.Tensor | bool = False
    is_reduced: bool = False
    weighted: WeakSet[Any] = field(default_factory=WeakSet)
    summed_backwards: set[bool] = field(default_factory=set)
    trained: set[int] = field(default_factory=set)
    gathers: bool = False
    applies: bool = True
    waits: Waits | None = None
    rows: frozenset[int | None] = frozenset({None})
    are_even: bool = False
    scalars_differ: bool = False
    apart: list[Any] = field(default_factory=list)
    seed_states: list[Any] = field(default_factory=list)
    assigned: dict[int, tuple[Any, tf.Tensor | None]] = field(default_factory=dict)
    moves: Counter[int] = field(default_factory=Counter)
    unforeseen: list[Any] = field(default_factory=list)
    first_batch: Way | None = None
    is_own_step: bool = False
    optimizers: dict[int, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    prepare: Callable[[Any, Sequence[Any]], None] | None = None
    results: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    graph: Any = field(default_factory=at_call.graph_here)

    @property
    def weight(self) -> tf.Tensor:
        """The fraction of the global batch's examples that this replica has, float32 [].

        Over all replicas the weights add up to 1.
        """
        if isinstance(self.given_weight, tf.Variable):
            return self.given_weight
        return of_step(lambda share: share.given_weight, "weight")

    @property
    def is_whole(self) -> tf.Tensor | bool:
        """Whether the share is the whole batch, which all replicas compute, bool [].

        If so, one replica has the weight 1, and the others have 0.
        """
        if self.given_is_whole is False:
            return False
        return of_step(lambda share: share.given_is_whole, "is_whole", tf.bool, lambda: False)

    @property
    def is_weighted(self) -> bool:
        """Whether this step itself multiplies a loss by the weight."""
        return bool(self.weighted)

    @property
    def is_of_loop(self) -> bool:
        """Whether the step is the body of a script's own loop, and not one of the engine's."""
        return self.prepare is not None

    @property
    def kind(self) -> Hashable:
        """What decides how a script's own function is traced in this step.

        In the body of a loop, shares of many sizes may get the same trace.
        """
        rows = bool(self.rows) if self.is_of_loop else self.rows
        is_cut = self.given_is_whole is False
        return self.is_of_loop, rows, is_cut, self.is_own_step, self.scalars_differ

    @property
    def has_examples(self) -> tf.Tensor:
        """Whether the share has examples of its own, and not only a borrowed one, bool []."""
        return self.weight > 0

    @property
    def of_gradient(self) -> tf.Tensor:
        """The factor of the share's gradients in the applied gradients, float32 [].

        It is the weight. In a step that the worker takes by itself it is 1, or 0 without examples.
        """
        if not self.is_own_step:
            return self.weight
        return tf.cast(self.has_examples | self.is_whole, self.weight.dtype)

    @property
    def of_batch(self) -> tf.Tensor:
        """The fraction of the batch's examples over which a sum of the share runs, float32 []."""
        if not self.is_own_step or self.given_is_whole is False:
            return self.weight
        return tf.where(self.is_whole, tf.ones_like(self.weight), self.weight)


class _ShareOfThread(threading.local):
    """The present share of each thread: MirroredStrategy traces each replica in its own thread."""

    share: Share | None = None

    def __init__(self) -> None:
        self.loops: list[Share] = []


_of_thread = _ShareOfThread()


def current() -> Share | None:
    """Return the share that is being computed; None outside of a step of several replicas."""
    loops = _of_thread.loops
    return _of_thread.share or (loops[-1] if loops else None)


def of_step(
    find: Callable[[Share], Any],
    key: Hashable,
    dtype: tf.DType = tf.float32,
    outside: Callable[[], Any] = lambda: 1.0,
) -> Any:
    """Return a scalar of the present step; a script's own function gets it again at each call.

    Args:
        find: returns the scalar for a share. It may also note that the function is called.
        key: a name of the value, unique within a function.
        dtype: the scalar's type.
        outside: returns the scalar for a call outside of steps.
    """

    def now() -> Any:
        share = current()
        return tf.cast(outside(), dtype) if share is None else find(share)

    def graph_of_step() -> Any:
        share = current()
        return share.graph if share else None

    return at_call.value(now, key, dtype, graph_of_step)


def applies() -> bool:
    """Tell whether optimizers apply gradients; see `Share.applies`.

    A script's own function is always traced with applied gradients, because TensorFlow keeps it for
    real steps.
    """
    part = current()
    return part is None or part.applies or part.graph is not at_call.graph_here()


@contextmanager
def computing(
    weight: tf.Tensor,
    is_whole: tf.Tensor | None = None,
    waits: Waits | None = None,
    rows: Collection[int | None] = (None,),
    *,
    is_own_step: bool = False,
) -> Iterator[Share]:
    """Compute a replica's part of a step within the context; see `Share`."""
    share = Share(
        weight,
        False if is_whole is None else is_whole,
        waits=waits,
        rows=frozenset(rows),
        is_own_step=is_own_step,
    )
    before, _of_thread.share = _of_thread.share, share
    try:
        yield share
    finally:
        _of_thread.share = before


@contextmanager
def in_loop(share: Share) -> Iterator[None]:
    """Let this thread compute a part of a step while the body of a script's loop runs.

    Loops may be nested. They may also run in turns, as in `zip`, and end in any order. The loop
    that has begun last determines the share.
    """
    loops = _of_thread.loops
    loops.append(share)
    try:
        yield
    finally:
        loops[:] = [one for one in loops if one is not share]


@contextmanager
def outside() -> Iterator[None]:
    """Run the context outside of any step."""
    before = _of_thread.share, _of_thread.loops
    _of_thread.share, _of_thread.loops = None, []
    try:
        yield
    finally:
        _of_thread.share, _of_thread.loops = before


def is_shared() -> bool:
    """Tell whether a step of several replicas is being computed here."""
    return current() is not None


@contextmanager
def reduced(share: Share) -> Iterator[None]:
    """Mark the gradients in the context as gradients of all replicas."""
    share.is_reduced = True
    try:
        yield
    finally:
        share.is_reduced = False


def is_of_all(variable: Any) -> bool:
    """Tell whether every replica has a copy of a Keras or TensorFlow variable."""
    variable, strategy = tensorflow_variable(variable), tf.distribute.get_strategy()
    if isinstance(variable, tensorflow_names.DistributedVariable):
        return True
    return tensorflow_names.replicas_in_sync(strategy) == 1 and bool(ring_of(strategy))


def is_aggregated(variable: Any) -> bool:
    """Tell whether a strategy itself keeps a variable's copies equal when it is assigned."""
    variable = tensorflow_variable(variable)
    is_one_of_several = isinstance(variable, tensorflow_names.DistributedVariable)
    return is_one_of_several and variable.aggregation != tf.VariableAggregation.NONE


def own(variable: Any) -> Any:
    """Return this replica's own copy of a Keras or TensorFlow variable.

    Raises:
        ValueError: all replicas of the process share one variable, which each of them would change.
    """
    if not is_of_all(variable):
        name = name_of(variable)
        if local_devices.is_of_all(tf.distribute.get_strategy()):
            raise ValueError(f"{name!r} {OF_NO_PART}")
        raise ValueError(
            f"{name!r} was created outside of the strategy's scope. Several replicas need the "
            "model, its optimizer and its metrics to be created within `strategy.scope()`."
        )
    variable = tensorflow_variable(variable)
    is_one_of_several = isinstance(variable, tensorflow_names.DistributedVariable)
    return tensorflow_names.copy_here(variable) if is_one_of_several else variable


def name_of(variable: Any) -> str:
    """Return the path of a Keras variable, or the name of one of TensorFlow's."""
    return str(getattr(variable, "path", variable.name))


def tensorflow_variable(variable: Any) -> Any:
    """Return TensorFlow's variable, which may be the value of one of Keras's."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def seeing_one_replica(of_all: property) -> property:
    """Return a `strategy.num_replicas_in_sync` that is 1 within a step.

    Keras's losses divide by it, and so does a `train_step` written for tf.distribute, because
    tf.distribute sums gradients. The engine computes their mean.
    """
    of_strategy: Any = of_all.fget

    def num_replicas_in_sync(strategy: tf.distribute.Strategy) -> int:
        return 1 if current() else int(of_strategy(strategy))

    return property(num_replicas_in_sync, doc=of_strategy.__doc__)

"""Gives a plain model's variables a copy on each device while Keras computes on all devices.

Outside of such a call, the model has the variables that the script has created. Within the call,
each of these variables is the first device's copy. So a script never meets a variable of several
devices between two calls, or between two steps of its own loop.

Within the call, the script may still know a variable by another name, such as a global, and then
assigns to the first copy only. `assigned` and `renew` give the other copies the same value.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary, finalize

import keras
import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import of_model, random_layers, statistics
from cluster_trainer.private import keras_names, tensorflow_names

ON_READ = tf.VariableSynchronization.ON_READ
SUM, MEAN = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN


@dataclass(frozen=True, eq=False)
class Place:
    """The place of one of TensorFlow's variables: in a Keras variable, or in a layer's attribute.

    Attributes:
        owner: the Keras variable, or the layer.
        name: the name of the layer's attribute; None: the owner is a Keras variable.
        index: the place within the attribute, a list or a dictionary; None: the attribute is the
            variable.
    """

    owner: Any
    name: str | None = None
    index: Any = None

    @property
    def key(self) -> tuple[int, str | None, Any]:
        """The identity of the place."""
        return id(self.owner), self.name, self.index

    @property
    def variable(self) -> Any:
        """The variable in this place now; None: it is not initialised yet, or was removed."""
        if self.name is None:
            return keras_names.value_of(self.owner)
        value = vars(self.owner).get(self.name)
        return value if self.index is None else dict(_items(value)).get(self.index)

    def put(self, variable: Any) -> None:
        """Put another variable in this place."""
        if self.name is None:
            keras_names.set_value(self.owner, variable)
        elif self.index is None:
            vars(self.owner)[self.name] = variable
        else:
            _put(vars(self.owner)[self.name], self.index, variable)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a list or a dictionary, by index or key; nothing of anything else."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _put(container: Any, index: Any, variable: Any) -> None:
    """Put a variable in a container, past the methods by which Keras and TensorFlow note it."""
    for one in (container, tensorflow_names.without_wrapper(container)):
        for kind in (list, dict):
            if issubclass(type(one), kind):  # a wrapper only says that it is a dictionary
                kind.__setitem__(one, index, variable)


@dataclass
class _Known:
    """The mirrored variable of a place, and the number of running calls that compute with it."""

    mirrored: Any = None
    calls: int = 0


@dataclass
class _OfProcess:
    """The state of all threads.

    Attributes:
        known: the places.
        mirrored: the mirrored variables, by the `id` of the first copy, which each of them holds.
        calls: the number of each model's running calls.
        held: the running calls.
        lock: guards this state.
    """

    known: dict[tuple[int, str | None, Any], _Known] = field(default_factory=dict)
    mirrored: WeakValueDictionary[int, Any] = field(default_factory=WeakValueDictionary)
    calls: WeakKeyDictionary[keras.Model, int] = field(default_factory=WeakKeyDictionary)
    held: list["Held"] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


_of_process = _OfProcess()


def places_of(model: keras.Model) -> list[Place]:
    """Return the places of all variables that a step of a model may read or assign."""
    found = [*model.variables, *statistics.of_metrics(model), *random_layers.global_seed()]
    given = [one for one in keras_names.user_metrics(model) if isinstance(one, keras.Metric)]
    found += [variable for metric in given for variable in metric.variables]
    for optimizer in keras_names.optimizers_of(model):
        found += optimizer.variables
    places = [Place(one) for one in {id(one): one for one in found}.values()]
    for layer in keras_names.layers_within(model):
        places += _places_in(layer)
    return [place for place in places if place.variable is not None]


def _places_in(layer: Any) -> Iterator[Place]:
    """Yield the places of a layer's attributes that are TensorFlow's own variables.

    These are the variables of `statistics.plain_variables`, except those in tuples.
    """
    for name, value in vars(layer).items():
        if isinstance(value, tf.Variable):
            yield Place(layer, name)
        elif any(isinstance(one, tf.Variable) for _, one in islice(_items(value), 1)):
            for index, one in _items(value):
                if isinstance(one, tf.Variable):
                    yield Place(layer, name, index)


def may_be_copied(model: keras.Model, strategy: tf.distribute.Strategy) -> bool:
    """Tell whether a model's variables are plain, or already mirrored on all devices.

    Trainable plain variables must be on the first of the strategy's devices.
    """
    first = strategy.extended.worker_devices[0]
    return all(_may_be_copied(one.variable, first) for one in places_of(model))


def _may_be_copied(variable: Any, device: str) -> bool:
    if isinstance(variable, tensorflow_names.DistributedVariable):
        return local_devices.is_of_all(variable.distribute_strategy)
    # Variables that are not trained, such as seeds, may be on the CPU.
    return not variable.trainable or variable.device == device


class Held:
    """A model in a call that computes on all devices; see `hold`."""

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
        self._model, self._strategy = model, strategy
        self._places: list[Place] = []
        self._computing: set[int] = set()
        self.thread = threading.get_ident()

    def hold(self) -> None:
        """Put mirrored variables in their places, and the model in the strategy's scope.

        All devices begin with the first device's values. Copies that are summed when read begin
        with 0 on the other devices.
        """
        calls = _of_process.calls
        with _of_process.lock:
            for one in _of_process.held:  # variables that outer calls have created stay as they are
                one.hold_new(one.new())
            _of_process.held.append(self)
            calls[self._model] = calls.get(self._model, 0) + 1
            keras_names.give_strategy(self._model, self._strategy)
            self._computing = _computing()
            earlier = [one for place in places_of(self._model) if (one := self._hold(place))]
            _run(self._model, "to all devices", _without_duplicates(earlier), _spread)

    def _hold(self, place: Place) -> Any:
        """Hold a place; return its mirrored variable if that exists and its copies are stale."""
        known, variable, stale = _known(place), place.variable, None
        if not known.calls and not isinstance(variable, tensorflow_names.DistributedVariable):
            made = _of_process.mirrored.get(id(variable))
            if made is None:
                made = _of_process.mirrored[id(variable)] = _mirrored(variable, self._strategy)
            elif id(made) not in self._computing:
                stale = made
            known.mirrored = made
            place.put(made)
        known.calls += 1
        self._places.append(place)
        return stale

    def hold_new(self, places: Iterable[Place]) -> None:
        """Hold the places of variables that a call within this one has created."""
        for place in places:
            self._hold(place)

    def new(self) -> list[Place]:
        """Return the places whose mirrored variables were created within the call."""
        held = {place.key for place in self._places}
        return [
            place
            for place in places_of(self._model)
            if place.key not in held
            and isinstance(place.variable, tensorflow_names.DistributedVariable)
        ]

    def release(self) -> None:
        """Put the first device's variables back, with the sums or means of separate copies."""
        calls = _of_process.calls
        with _of_process.lock:
            _of_process.held.remove(self)
            calls[self._model] -= 1
            if not calls[self._model]:
                keras_names.give_strategy(self._model, None)
            left = [*self._released()]
            computing = _computing()
            summed = [
                one
                for _, one in left
                if one.synchronization is ON_READ and id(one) not in computing
            ]
            _run(self._model, "from all devices", _without_duplicates(summed), _gather)
            for place, mirrored in left:
                place.put(tensorflow_names.copies_of(mirrored)[0])

    def _released(self) -> Iterator[tuple[Place, Any]]:
        """Yield the places that no call holds any more, with their variables."""
        for place in self._places:
            known = _known(place)
            known.calls -= 1
            if not known.calls and isinstance(place.variable, tensorflow_names.DistributedVariable):
                known.mirrored = place.variable  # created within the call, or before it
                first = tensorflow_names.copies_of(known.mirrored)[0]
                _of_process.mirrored[id(first)] = known.mirrored
                yield place, place.variable


def assigned(copy: Any) -> None:
    """Give the other devices the value that the script has just assigned to a copy by its own name.

    It is a no-op if no call is running, or if the variable is not a first device's copy.
    """
    if not _of_process.held:
        return
    mirrored = _of_process.mirrored.get(id(copy))
    if mirrored is not None:
        _spread([mirrored])


def renew(model: keras.Model) -> None:
    """Give the other devices the first copies' values, before the first step of an epoch.

    A function that the script traced before the call assigns to the first copies only. Copies that
    steps have changed separately since they were last averaged stay as they are. It is a no-op
    outside of calls on all devices, and if other threads compute in such calls.
    """
    with _of_process.lock:
        threads = {one.thread for one in _of_process.held}
        if not _of_process.calls.get(model) or threads != {threading.get_ident()}:
            return
        apart = {id(_raw(one)) for one in statistics.not_averaged(model)}
        found = [place.variable for place in places_of(model)]
        equal = [
            one
            for one in found
            if isinstance(one, tensorflow_names.DistributedVariable)
            and one.synchronization is not ON_READ
            and id(one) not in apart
        ]
        _run(model, "renewed", _without_duplicates(equal), _spread)


def _raw(variable: Any) -> Any:
    return variable if isinstance(variable, tf.Variable) else keras_names.value_of(variable)


def _computing() -> set[int]:
    """Return the `id`s of the mirrored variables with which calls compute, in whatever place."""
    return {id(one.mirrored) for one in _of_process.known.values() if one.calls}


def _without_duplicates(variables: Sequence[Any]) -> list[Any]:
    return [*{id(one): one for one in variables}.values()]


def _known(place: Place) -> _Known:
    table = _of_process.known
    if place.key not in table:
        table[place.key] = _Known()
        finalize(place.owner, table.pop, place.key, None)
    return table[place.key]


def _mirrored(variable: Any, strategy: tf.distribute.Strategy) -> Any:
    """Return a mirrored variable whose first copy is the given plain variable."""
    copies, name = [variable], variable.name.partition(":")[0]
    with tf.init_scope():
        for number, device in enumerate(strategy.extended.worker_devices[1:], 1):
            with tf.device(device):
                value = tf.identity(variable)
                copies.append(
                    tf.Variable(
                        tf.zeros_like(value) if _is_summed(variable) else value,
                        trainable=variable.trainable,
                        name=f"{name}/replica_{number}",
                        dtype=variable.dtype,
                        shape=variable.shape,
                    )
                )
    return tensorflow_names.mirrored_variable(strategy, copies)


def _is_summed(variable: Any) -> bool:
    return variable.synchronization is ON_READ and variable.aggregation is SUM


def _run(
    model: keras.Model,
    name: str,
    variables: Sequence[Any],
    compute: Callable[[Sequence[Any]], None],
) -> None:
    if variables:
        make = lambda: function_of(lambda: compute(variables))  # noqa: E731
        of_model.of(model).function(name, variables, make)()


def _spread(variables: Sequence[Any]) -> None:
    """Give all copies the first copy's value, or 0 if the copies are summed when read."""
    for variable in variables:
        first, *others = tensorflow_names.copies_of(variable)
        for copy in others:
            with tf.device(copy.device):
                value = tf.identity(first)
                copy.assign(tf.zeros_like(value) if _is_summed(variable) else value)


def _gather(variables: Sequence[Any]) -> None:
    """Give the first copy the value that a strategy would read: the sum or mean of all copies."""
    for variable in variables:
        first, *_ = copies = tensorflow_names.copies_of(variable)
        if variable.aggregation not in (SUM, MEAN):
            continue
        with tf.device(first.device):
            total = sum(tf.identity(copy) for copy in copies)
            is_mean = variable.aggregation is MEAN
            first.assign(total / tf.cast(len(copies), total.dtype) if is_mean else total)

"""Saves state that Keras does not list: plain `tf.Variable`s, variables of helpers, lookup tables.

Keras lists the variables that it has created for a model and an optimizer. A program may have
others: a counter that is a `tf.Variable`, buffers in a `tf.Module`, a second model within a
callback, a table that grows. They are found by their attributes, whose names are the same in each
process that runs the same program. Two kinds are not attributes of anything: variables that a
callback's functions use (globals and closures), and those that a step assigns, such as a counter in
a loss function.
"""

import hashlib
import io
import logging
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, compress, islice
from types import FunctionType, MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.callbacks.state import states
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine.running import of_a_user
from cluster_trainer.own_code import functions_of, is_of_script, unwrapped, variables_of
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.problems import Problem, listed

VARIABLES = (tf.Variable, keras.Variable)
TABLES = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)
HOLDERS = (
    keras.Layer,
    keras.Optimizer,
    keras.Loss,
    keras.metrics.Metric,
    keras.callbacks.Callback,
    keras.random.SeedGenerator,
    keras.optimizers.schedules.LearningRateSchedule,
    tf.__internal__.tracking.AutoTrackable,  # includes tf.Module
)
"""Classes of the libraries whose objects may hold variables, in addition to users' classes."""
FUNCTIONS = (FunctionType, MethodType, partial, tf.types.experimental.PolymorphicFunction)
LEAVES = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic, tf.Tensor)
LIBRARIES = {"keras", "tensorflow", "numpy", "pandas", "cluster_trainer", *sys.stdlib_module_names}
LIBRARIES -= {"__main__"}
OF_MODEL, OF_STEPS = "model", "steps"
CALLS_FUNCTIONS = (keras.callbacks.LambdaCallback, keras.callbacks.LearningRateScheduler)
"""Keras's callbacks that call functions of a script."""
TEXT = "serialized"
"""The name of a serialized string tensor, which NumPy cannot write as an array."""
WHAT = "a checkpoint (other variables)"
MOST_OBJECTS = 100_000
"""The number of objects that are searched at each checkpoint, which takes less than a second."""
NESTED = 4
"""The depth of collections at which the types of their items are checked."""
SHOWN = 5
log = logging.getLogger("trainer")

Row = Mapping[str, np.ndarray]
"""One replica's value of a variable or a table, part -> array."""


@dataclass(frozen=True)
class Tracked:
    """The state of a model and of a fit's callbacks that Keras does not list.

    Attributes:
        model: the compiled model.
        callbacks: the fit's callbacks.
        known: the variables that are saved in another way.
        assigned: all variables that a traced step assigns.
    """

    model: keras.Model
    callbacks: Sequence[Any]
    known: Sequence[Any]
    assigned: Sequence[Any] = ()

    def take(self, arrays: list[np.ndarray]) -> dict[str, Any]:
        """Return the state as a JSON value, and append its arrays to the list.

        All workers call this. Values that are the same on all replicas are saved once, and others
        for each replica.
        """
        mine = {path: _rows(one) for path, one in self._found().items()}
        return {
            path: states.as_json(rows, arrays) for path, rows in self._of_all_workers(mine).items()
        }

    def missing(self, saved: Mapping[str, Any]) -> list[Problem]:
        """Return a problem if the model lacks state that the checkpoint has; warn of the rest."""
        found = self._found()
        absent = [path for path in saved if path not in found]
        missing = [path for path in absent if path.startswith(OF_MODEL)]
        if later := [path for path in absent if path not in missing]:
            # A callback may create it in any hook, and may have started over before there were
            # checkpoints.
            log.warning(
                "in the checkpoint, but not created here yet: %s; not restored",
                listed(later[:SHOWN]),
            )
        if new := [path for path in found if path not in saved]:
            log.warning("not in the checkpoint, and left as it is: %s", listed(new[:SHOWN]))
        if not missing:
            return []
        advice = (
            "Create it in `__init__`, `build` or `on_train_begin`, so that it exists when the fit "
            "resumes."
        )
        accepted = f"{listed(missing[:SHOWN])}, as in the checkpoint"
        return [Problem("variables that the model holds", "", accepted, advice)]

    def put_back(self, saved: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
        """Restore the result of `take` on all replicas of this process."""
        replicas = Replicas.of(self.model.distribute_strategy)
        for path, one in self._found().items():
            if path not in saved:
                continue
            rows = states.from_json(saved[path], arrays)
            if len(rows) not in (1, replicas.total):
                log.warning(
                    "%s differs between the %d replicas of the checkpoint; the %d replicas of "
                    "this start get the mean of floats and the first replica's integers",
                    *(path, len(rows), replicas.total),
                )
                rows = [_mean(rows)]
            local = rows if len(rows) == 1 else rows[replicas.first :][: replicas.local]
            _assign(one, local)

    def _found(self) -> dict[str, Any]:
        roots = {OF_MODEL: self.model}
        counted: dict[str, int] = {}
        own = of_a_user(self.callbacks)
        for callback in self.callbacks:
            is_own = isinstance(callback, CALLS_FUNCTIONS) or any(callback is one for one in own)
            if not is_own or states.has_state(callback):  # it saves its state itself
                continue
            kind = type(callback).__name__
            counted[kind] = counted.get(kind, 0) + 1
            roots[f"{kind} {counted[kind]}"] = callback
        if self.model.run_eagerly:  # there is no trace of its steps
            roots[OF_STEPS] = functions_of_steps(self.model)
        found = dict(_walk(roots, self.known))
        return found | self._of_steps([*self.known, *found.values()])

    def _of_steps(self, others: Iterable[Any]) -> dict[str, Any]:
        """Return the variables that steps assign, and that are not among the others."""
        known = {id(copy.handle) for one in others for copy in _copies_of(one)}
        found: dict[str, Any] = {}
        counted: Counter[str] = Counter()
        for one in self.assigned:
            if not any(id(copy.handle) in known for copy in tensorflow_names.copies_of(one)):
                counted[one.name] += 1
                found[f"{OF_STEPS}.{one.name} {counted[one.name]}"] = one
        return found

    def _of_all_workers(self, mine: dict[str, list[Row]]) -> dict[str, list[Row]]:
        workers = workers_of(self.model.distribute_strategy)
        paths = _number([path.encode() for path in mine])
        content = _number(part for rows in mine.values() for row in rows for part in _bytes_of(row))
        if len(set(workers.gather(paths ^ content, WHAT))) == 1:
            return {path: _once(rows) for path, rows in mine.items()}
        if len(set(workers.gather(paths, WHAT))) > 1:
            log.warning("the workers have different variables besides Keras's: each keeps its own")
            return {path: rows[:1] for path, rows in mine.items()}
        found: dict[str, list[Row]] = {}
        for path, rows in mine.items():
            digest = _number(part for row in rows for part in _bytes_of(row))
            if len(set(workers.gather(digest, WHAT))) == 1:
                found[path] = _once(rows * workers.count)
                continue
            given = [
                workers.broadcast(_packed(rows) if rank == workers.rank else None, rank, WHAT)
                for rank in range(workers.count)
            ]
            found[path] = [row for one in given for row in _unpacked(one)]
        return found


def functions_of_steps(model: keras.Model) -> dict[str, Any]:
    """Return the functions of a script that a model's steps call: its losses, its own methods."""
    losses = keras.tree.flatten(keras_names.user_losses(model))
    alone = {f"loss {at}": one for at, one in enumerate(losses) if isinstance(one, FUNCTIONS)}
    methods = {
        f"{type(one).__name__}.{name}": function
        for one in [*losses, *keras_names.layers_within(model)]
        for name, function in functions_of(type(one)).items()
    }
    return alone | methods


def _copies_of(one: Any) -> Sequence[Any]:
    if isinstance(one, TABLES):
        return ()
    value = keras_names.value_of(one) if isinstance(one, keras.Variable) else one
    return () if value is None else tensorflow_names.copies_of(value)


def _walk(roots: Mapping[str, Any], known: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each variable and table, with the shortest path of attributes that leads to it."""
    seen = {id(one): one for one in known}
    most = len(seen) + MOST_OBJECTS
    queue = deque(roots.items())
    while queue:
        path, one = queue.popleft()
        if len(seen) > most:
            _warn_of_more(path.partition(".")[0])
            return
        is_of_model = path.partition(".")[0] == OF_MODEL
        if _is_leaf(type(one)) or id(one) in seen or (is_of_model and isinstance(one, FUNCTIONS)):
            continue
        seen[id(one)] = one
        if isinstance(one, VARIABLES + TABLES):
            if not isinstance(one, keras.Variable) or keras_names.value_of(one) is not None:
                yield path, one
            continue
        named = _parts(one) if is_of_model else chain(_used_by(one), _parts(one))
        parts = islice(named, most)  # otherwise all items of a huge list would be named
        queue.extend((f"{path}.{name}", part) for name, part in parts)


@cache
def _warn_of_more(root: str) -> None:
    log.warning(
        "%s holds more than %d objects: variables among the last of them are not in checkpoints",
        *(root, MOST_OBJECTS),
    )


def _used_by(one: Any) -> Iterable[tuple[str, Any]]:
    """Return the variables that a function uses, or the functions of an object's class."""
    if isinstance(one, tf.types.experimental.PolymorphicFunction):
        one = unwrapped(one)
    if isinstance(one, FunctionType):
        return sorted(variables_of(one).items()) if is_of_script(one) else []
    if isinstance(one, MethodType):
        return [("self", one.__self__), ("function", one.__func__)]
    if isinstance(one, partial):
        held = [one.func, *one.args, *one.keywords.values()]
        return [(str(index), part) for index, part in enumerate(held)]
    return sorted(functions_of(type(one)).items()) if is_of_script(type(one)) else []


def _parts(one: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(one, Mapping):
        if _is_plain([*one.values()]):
            return []
        named = compress(one.items(), _are_not_leaves(one.values()))
        return [(str(name), part) for name, part in named if isinstance(name, (str, int))]
    if isinstance(one, (list, tuple)):
        return [] if _is_plain(one) else _not_leaves(one)
    if isinstance(one, HOLDERS) or type(one).__module__.partition(".")[0] not in LIBRARIES:
        return sorted(getattr(one, "__dict__", {}).items())
    return []


def _not_leaves(parts: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    found = compress(enumerate(parts), _are_not_leaves(parts))
    return ((str(index), part) for index, part in found)


def _are_not_leaves(parts: Iterable[Any]) -> Iterable[bool]:
    """Tell for each part whether it may hold state, without a Python loop over the parts."""
    kinds = [*map(type, parts)]
    return map({kind for kind in {*kinds} if not _is_leaf(kind)}.__contains__, kinds)


def _is_plain(parts: Sequence[Any], depth: int = NESTED) -> bool:
    """Tell whether a collection contains only leaves, without a Python loop over its items."""
    kinds = {*map(type, parts)}
    nested = {kind for kind in kinds if not _is_leaf(kind)}
    if not nested:
        return True
    if not depth or not nested <= {list, tuple, dict}:
        return False
    once = [*dict(zip(map(id, parts), parts, strict=True)).values()]  # a row may occur often
    values = map(dict.values, _of_kinds(once, {dict}))
    within = chain.from_iterable([*_of_kinds(once, {list, tuple}), *values])
    return _is_plain([*within], depth - 1)


def _of_kinds(parts: Sequence[Any], kinds: set[type]) -> Iterable[Any]:
    return compress(parts, map(kinds.__contains__, map(type, parts)))


def _is_leaf(kind: type) -> bool:
    return issubclass(kind, LEAVES) and not issubclass(kind, VARIABLES)


def _rows(one: Any) -> list[Row]:
    if isinstance(one, TABLES):
        return [
            {name: _array(part) for name, part in tensorflow_names.table_as_tensors(one).items()}
        ]
    value = keras_names.value_of(one) if isinstance(one, keras.Variable) else one
    parts = value.values if isinstance(value, tf.distribute.DistributedValues) else [value]
    return [_of_tensor(part.read_value()) for part in parts]


def _of_tensor(tensor: tf.Tensor) -> Row:
    if tensor.dtype == tf.string:
        return {TEXT: _array(tensor)}
    return {"value": _array(tensor)}


def _array(tensor: tf.Tensor) -> np.ndarray:
    if tensor.dtype == tf.string:
        return np.frombuffer(tf.io.serialize_tensor(tensor).numpy(), np.uint8)
    return np.asarray(tensor).copy()


def _tensor(array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    if dtype == tf.string:
        return tf.io.parse_tensor(np.asarray(array, np.uint8).tobytes(), tf.string)
    array = np.asarray(array)
    kind = dtype.as_numpy_dtype
    return tf.constant(array.view(kind) if array.dtype.kind == "V" else array, dtype)


def _assign(one: Any, rows: Sequence[Row]) -> None:
    if isinstance(one, TABLES):
        now = tensorflow_names.table_as_tensors(one)
        tensorflow_names.fill_table(
            one, {name: _tensor(rows[0][name], part.dtype) for name, part in now.items()}
        )
        return
    value = keras_names.value_of(one) if isinstance(one, keras.Variable) else one
    parts = value.values if isinstance(value, tf.distribute.DistributedValues) else [value]
    for index, part in enumerate(parts):
        row = rows[min(index, len(rows) - 1)]
        part.assign(_tensor(next(iter(row.values())), part.dtype))


def _once(rows: list[Row]) -> list[Row]:
    """Return a single row if all rows are the same; else all rows."""
    contents = {tuple(bytes(part) for part in _bytes_of(row)) for row in rows} if rows[1:] else {0}
    return rows[:1] if len(contents) == 1 else rows


def _mean(rows: Sequence[Row]) -> Row:
    def of_all(name: str) -> Any:
        parts = [np.asarray(row[name]) for row in rows]
        are_alike = len({part.shape for part in parts}) == 1
        is_float = parts[0].dtype.kind == "f"
        return np.mean(parts, axis=0) if are_alike and is_float else parts[0]

    return {name: of_all(name) for name in rows[0]}


def _packed(rows: Sequence[Row]) -> bytes:
    file = io.BytesIO()
    named = {
        f"{index} {name}": part for index, row in enumerate(rows) for name, part in row.items()
    }
    np.savez(file, allow_pickle=False, **named)
    return file.getvalue()


def _unpacked(content: bytes) -> list[Row]:
    rows: dict[str, dict[str, np.ndarray]] = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as members:
        for key in members.files:
            index, _, name = key.partition(" ")
            rows.setdefault(index, {})[name] = members[key]
    return list(rows.values())


def _bytes_of(row: Row) -> Iterator[Any]:
    for name, part in row.items():
        yield f"{name} {part.dtype} {part.shape}".encode()
        yield np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


def _number(parts: Iterable[Any]) -> int:
    """Return a digest that workers can exchange as a number."""
    digest = hashlib.blake2b(digest_size=7)
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return int.from_bytes(digest.digest())

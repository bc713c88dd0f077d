"""Calls a model on zeros, which builds layers that cannot be built from Keras's symbols."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.engine.replicas.random_layers import global_seed
from cluster_trainer.private import keras_names

MOST_NAMED = 5


class CallChangesError(ValueError):
    """A call on zeros would have a lasting effect, so that `fit` would differ from Keras's."""


def call_on_zeros(model: Any, batch: Any) -> None:
    """Build layers by calling the model on zeros, and undo the call's other effects.

    Raises:
        CallChangesError: the call assigns to a variable that it has created itself. The variable
            has no earlier value that could be restored.
    """
    x, *_ = keras.utils.unpack_x_y_sample_weight(batch)
    before = {id(one): (one, one.numpy()) for one in _that_a_call_may_change(model)}
    with _noting_assignments() as assigned:
        model(keras.tree.map_structure(_zeros, x), training=False)
    for state in global_seed():  # the call may have created it
        before.setdefault(id(state), assigned.get(id(state), (state, state.numpy())))
    if changed := [one.path for name, (one, _) in assigned.items() if name not in before]:
        raise CallChangesError(
            f"{model.name!r} cannot be built before its first step, as several replicas need it: "
            f"a call assigns to {', '.join(changed[:MOST_NAMED])}, which it creates itself. "
            "Create that in `__init__`, or build the model before `fit`."
        )
    for variable, value in before.values():
        variable.assign(value)


def _that_a_call_may_change(model: Any) -> Iterator[Any]:
    """Yield the variables of a model and of its layers' metrics, and Keras's global seed."""
    yield from model.variables
    for layer in keras_names.layers_within(model):
        for metric in keras_names.own_metrics(layer):
            yield from metric.variables
    yield from global_seed()


@contextmanager
def _noting_assignments() -> Iterator[dict[int, tuple[Any, Any]]]:
    """Yield a dictionary of the assigned variables with their earlier values."""
    noted: dict[int, tuple[Any, Any]] = {}
    assign = keras_names.DIRECT_ASSIGN.own

    def note(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if id(self) not in noted:
            with tf.init_scope():  # a function may be traced here
                noted[id(self)] = self, self.numpy()
        return assign(self, *arguments, **keywords)

    with keras_names.DIRECT_ASSIGN.put_for_now(note):
        yield noted


def _zeros(value: Any) -> Any:
    return None if value is None else tf.zeros([size or 1 for size in value.shape], value.dtype)

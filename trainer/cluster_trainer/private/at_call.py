"""Gives a script's own traced functions the values of the step that calls them.

A script's own `tf.function` is traced in one step, and called in others. If it used a tensor of the
first step, TensorFlow could not call it in another step, or it would compute with an old value.
"""

from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from cluster_trainer.private import tensorflow_names

Find = Callable[[], Any]


def graph_here() -> Any:
    """Return the graph of the function that is being traced, also in its branches and loops.

    Return None if no function is traced.
    """
    if tf.executing_eagerly():
        return None
    graph: Any = tf.compat.v1.get_default_graph()
    while isinstance(graph, tensorflow_names.ControlFlowFuncGraph):
        graph = graph.outer_graph
    return graph


def value(find: Find, key: Hashable, dtype: tf.DType, graph_of_step: Callable[[], Any]) -> Any:
    """Return the result of `find`; a function of the script's own gets it again at each call.

    Args:
        find: returns a scalar of the present step.
        key: a name of the value, unique within a function.
        dtype: the value's type.
        graph_of_step: returns the graph in which the present step was begun; None: it runs eagerly.
    """
    graph = graph_here()
    if graph is graph_of_step() or not tensorflow_names.can_ask_at_call(graph):
        return find()

    def again() -> Any:
        return value(find, key, dtype, graph_of_step)

    return tensorflow_names.asked_at_call(graph, again, key, tf.TensorSpec([], dtype))

"""Keeps the traces that a script's functions have in steps of several replicas apart from others.

A function that is traced in such a step may sum over the replicas and multiply by a share's weight.
One that was traced elsewhere, for example by an evaluation before a `fit`, does neither. The kind
of step also decides what a trace contains. So TensorFlow gets the kind as a part of the key by
which it finds a function's traces.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from cluster_trainer.engine.replicas import step_context


def keyed_by_step(make_context: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the function that makes the key of a trace from its surroundings."""

    @wraps(make_context)
    def make_keyed(scope_type: Any = None) -> Any:
        context = make_context(scope_type)
        share = step_context.current()
        return context._replace(scope_type=(scope_type, share.kind)) if share else context

    return make_keyed

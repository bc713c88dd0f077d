"""Keeps the traces that a script's functions have in the bodies of loops apart from all others.

A function that was traced before a loop, for example by an evaluation, has no sums over the workers
and no weight of a share. So TensorFlow traces it again when it is first called in the body of a
loop. Outside of loops, a function's trace of a body is preferred if there is one.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import tensorflow_names

IN_LOOP = "in the body of a loop over `share`"


@cache
def keep_apart() -> None:
    """Let TensorFlow keep two kinds of traces from now on."""
    tensorflow_names.LOOKUP_TRACE.wrap(_finding)
    tensorflow_names.ADD_TRACE.wrap(_adding)


def _finding(look_up: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(look_up)
    def find(self: Any, function_type: Any, context: Any = None) -> Any:
        found = look_up(self, function_type, (IN_LOOP, context))
        if found is None and not step_context.is_in_loop():
            found = look_up(self, function_type, context)
        return found

    return find


def _adding(add: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(add)
    def add_apart(self: Any, trace: Any, context: Any = None) -> None:
        add(self, trace, (IN_LOOP, context) if step_context.is_in_loop() else context)

    return add_apart

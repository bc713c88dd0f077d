"""Keeps the traces that a script's functions have in the bodies of loops apart from all others.

A function that was traced before a loop, for example by an evaluation, has no sums over the workers
and no weight of a share. So TensorFlow traces it again when it is first called in the body of a
loop. Outside of loops, a function's trace of a body is preferred if there is one.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from cluster_trainer.engine.replicas import step_context

IN_LOOP = "in the body of a loop over `share`"


def finding(look_up: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for TensorFlow's look-up of a function's trace."""

    @wraps(look_up)
    def find(self: Any, function_type: Any, context: Any = None) -> Any:
        found = look_up(self, function_type, (IN_LOOP, context))
        if found is None and not step_context.is_in_loop():
            found = look_up(self, function_type, context)
        return found

    return find


def adding(add: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for TensorFlow's addition of a trace to a function's traces."""

    @wraps(add)
    def add_apart(self: Any, trace: Any, context: Any = None) -> None:
        add(self, trace, (IN_LOOP, context) if step_context.is_in_loop() else context)

    return add_apart

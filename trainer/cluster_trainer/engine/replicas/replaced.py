"""How a method of Keras is replaced: under a condition, with Keras's own otherwise."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def replace(owner: Any, name: str, ours: Callable[..., Any], applies: Callable[..., bool]) -> None:
    """Let `owner.name` be ours wherever `applies` says so when it is called.

    Args:
        owner: a class, or a module.
        name: of a method or function that is there: with another Keras this must be looked at.
        ours: takes what Keras's takes.
        applies: is called without arguments.
    """
    keras_own = getattr(owner, name)

    @wraps(keras_own)
    def chosen(*arguments: Any, **keywords: Any) -> Any:
        return (ours if applies() else keras_own)(*arguments, **keywords)

    setattr(owner, name, chosen)

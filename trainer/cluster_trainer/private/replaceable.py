"""Replaces functions, methods and properties of another project."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any


@dataclass(frozen=True)
class Replaceable:
    """A function, method or property of another project.

    Attributes:
        owner: a class or a module.
        name: the name of the owner's attribute.
    """

    owner: Any
    name: str

    @property
    def own(self) -> Any:
        """The present value."""
        return getattr(self.owner, self.name)

    def put(self, ours: Any) -> None:
        """Replace the value."""
        setattr(self.owner, self.name, ours)

    @contextmanager
    def put_for_now(self, ours: Any) -> Iterator[None]:
        """Replace the value within the context."""
        before = self.own
        self.put(ours)
        try:
            yield
        finally:
            self.put(before)

    def wrap(self, wrapping: Callable[[Any], Any]) -> None:
        """Replace the value with `wrapping(present value)`."""
        self.put(wrapping(self.own))

    def put_if(self, ours: Callable[..., Any], applies: Callable[[], bool]) -> None:
        """Replace a function for calls that fulfil a condition.

        Args:
            ours: the replacement; it takes the arguments of the replaced function.
            applies: the condition, evaluated at each call.
        """
        theirs = self.own

        @wraps(theirs)
        def chosen(*arguments: Any, **keywords: Any) -> Any:
            return (ours if applies() else theirs)(*arguments, **keywords)

        self.put(chosen)

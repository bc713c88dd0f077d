"""Names of functions, `module:function`: how built-in and users' own parts are found alike."""

import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Any

from cluster_trainer.problems import ConfigurationError, Problem

PATTERN = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<function>[A-Za-z_]\w*)")


def is_reference(text: str) -> bool:
    """Tell whether `text` has the form module:function."""
    return PATTERN.fullmatch(text) is not None


def module_exists(reference: str) -> bool:
    """Tell whether the top package of `module:function` can be found, without importing it.

    Importing the user's module may import TensorFlow, which takes seconds; a configuration is
    checked in less than one.
    """
    top = reference.partition(":")[0].partition(".")[0]
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def resolve(name: str, reference: str) -> Callable[..., Any]:
    """Import what `reference` names; `name` is the variable it came from, for the message.

    Raises:
        ConfigurationError: the module has no such function, or its import failed.
    """
    module_name, _, function_name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        problem = Problem(name, reference, "module:function that can be imported", f"{error}.")
        raise ConfigurationError([problem]) from error
    if not callable(function):
        raise ConfigurationError([Problem(name, reference, "a function", "It is not callable.")])
    return function  # type: ignore[no-any-return]

"""Names of functions, `module:function`, by which built-in and users' own parts are found."""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from cluster_trainer.problems import ConfigurationError, Problem

OF_OURS = "trainer"
PATTERN = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<function>[A-Za-z_]\w*)")


def look_in(folder: Path) -> None:
    """Add a folder with users' own modules to the import path, after the image's own packages.

    A user's module named `trainer`, as in many layouts for training in the cloud, takes precedence
    over the image's command of that name, whose code is in cluster_trainer.
    """
    sys.path.append(str(folder))
    if _own_trainer(folder):
        sys.modules.pop(OF_OURS, None)
        sys.meta_path.insert(0, _OwnTrainer(folder))


class _OwnTrainer:
    """Finds the package `trainer` of a folder, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        return _own_trainer(self._folder) if name == OF_OURS else None


def _own_trainer(folder: Path) -> ModuleSpec | None:
    """Return the spec of a folder's own `trainer`; None: it has none with Python code in it."""
    if not os.access(folder, os.X_OK):  # nothing in it can be imported or searched
        return None
    if not (folder / f"{OF_OURS}.py").exists() and not any((folder / OF_OURS).rglob("*.py")):
        return None
    return PathFinder.find_spec(OF_OURS, [str(folder)])


def is_reference(text: str) -> bool:
    """Tell whether `text` has the form module:function."""
    return PATTERN.fullmatch(text) is not None


def module_exists(reference: str) -> bool:
    """Tell whether the top package of `module:function` can be found, without importing it.

    Importing the user's module may import TensorFlow, which takes seconds. Checking a configuration
    should take less than one.
    """
    top = reference.partition(":")[0].partition(".")[0]
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def resolve(name: str, reference: str) -> Callable[..., Any]:
    """Import the function that `reference` names; `name` is its setting in messages.

    Raises:
        ConfigurationError: the module has no such function, or cannot be imported.
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

"""Names of functions, `module:function`: how built-in and users' own parts are found alike."""

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
    """Let users' own modules be found in a folder, behind the image's own packages.

    One that is called `trainer`, as in many a layout for training in the cloud, goes before the
    name by which the image's command is known: its code is cluster_trainer's.
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
    """Return where a folder's own `trainer` is; None if it has none with Python in it."""
    if not os.access(folder, os.X_OK):  # nothing of it can be imported, nor looked for
        return None
    if not (folder / f"{OF_OURS}.py").exists() and not any((folder / OF_OURS).rglob("*.py")):
        return None
    return PathFinder.find_spec(OF_OURS, [str(folder)])


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

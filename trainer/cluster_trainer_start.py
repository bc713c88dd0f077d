"""What each Python process of a command begins with: how TensorFlow is imported there.

In less time, and with as many threads as the container may use processors.

The image's `cluster-trainer.pth` calls `begin` before a script's first line, but not in the
entrypoint's own processes (`python -I`). It costs them, and every other process, hardly anything.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

TENSORFLOW = "tensorflow"
SLOW = (TENSORFLOW, "keras", "tf_keras")
"""Packages that take seconds to import, and make hardly any garbage: what they make stays."""


def begin() -> None:
    """Have these packages imported without garbage collection, which takes a quarter less time.

    Only while they are: what a script does before, between and after is collected as ever. Before
    TensorFlow is, it is told of its threads.
    """
    sys.meta_path.insert(0, _Finder)


class _Finder:
    """Finds them as the other finders do."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of one of them, None for any other; see importlib.abc."""
        if name not in SLOW:
            return None
        for finder in sys.meta_path:
            if finder is not _Finder and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    _have_import_quietly(spec.loader)
                    return spec
        return None


def _have_import_quietly(loader: Any) -> None:
    """Have a loader execute its module without collection, once: it is as it was by then."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type) or not hasattr(loader, "__dict__"):
        return

    def quietly(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # some finders have one loader for all modules
        if gc.isenabled():
            _without_collection(informed, module)
        else:  # within another of these imports, or as the script wishes
            informed(module)

    def informed(module: ModuleType) -> None:
        if module.__name__ == TENSORFLOW:
            _set_threads()
        execute(module)

    loader.exec_module = quietly


def _set_threads() -> None:
    """Let TensorFlow know what it cannot see of the container: it reads this when it starts."""
    from cluster_trainer.processors import threads_of_script  # noqa: PLC0415  other processes need none

    os.environ.update(threads_of_script(os.environ))


def _without_collection(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute a module; later collections leave out what is there by then.

    But not where Python has looked at all objects before: a script that has made so many may drop
    some of them later.
    """
    is_early = gc.get_stats()[-1]["collections"] == 0
    gc.disable()
    try:
        execute(module)
    finally:
        if is_early:
            gc.freeze()
        gc.enable()

"""Runs at the start of each Python process of a command: speeds up TensorFlow's import.

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

TENSORFLOW, KERAS, BACKEND = "tensorflow", "keras", "KERAS_BACKEND"
DEVICES = ("TRAINER_DEVICES", "TRAINER_LOGICAL_CPUS")
TRAINER = "trainer.__main__"
SLOW = (TENSORFLOW, KERAS, "tf_keras")
"""Packages that take seconds to import, and make hardly any garbage: their objects stay."""


def begin() -> None:
    """Import these packages without garbage collection, which takes a quarter less time.

    Other code of a script, before, between and after, is collected as usual. Before TensorFlow is
    imported, its number of threads is set.
    """
    sys.meta_path.insert(0, _Finder)
    if os.environ.get(BACKEND) == "jax":
        sys.excepthook = _refusing_tensorflow(sys.excepthook)


class _Finder:
    """Finds the packages like the other finders."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of such a package; None for any other; see importlib.abc."""
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
    """Let a loader execute its module without collection, once."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type) or not hasattr(loader, "__dict__"):
        return

    def quietly(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # some finders have one loader for all modules
        if gc.isenabled():
            _without_collection(informed, module)
        else:  # within another of these imports, or as the script has set it
            informed(module)

    def informed(module: ModuleType) -> None:
        if module.__name__ == TENSORFLOW:
            _refuse_no_temporary_folder()
            _set_threads()
            execute(module)
            _set_devices()
        else:
            execute(module)
        if module.__name__ == KERAS and os.environ.get(BACKEND) == "jax":
            from cluster_trainer.on_jax.hook import install  # noqa: PLC0415  other processes need none

            install()

    loader.exec_module = quietly


def _refuse_no_temporary_folder() -> None:
    """End this process, after a message, if there is no folder for temporary files."""
    from cluster_trainer.problems import ConfigurationError, ExitCode  # noqa: PLC0415
    from cluster_trainer.temporary_folder import refuse_no_temporary_folder  # noqa: PLC0415

    try:
        refuse_no_temporary_folder(os.environ)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(ExitCode.BAD_CONFIGURATION)


def _set_threads() -> None:
    """Tell TensorFlow, at its start, about limits of the container that it cannot see."""
    from cluster_trainer.processors import threads_of_script  # noqa: PLC0415  other processes need none

    os.environ.update(threads_of_script(os.environ))


def _set_devices() -> None:
    """Restrict TensorFlow to the devices in the script's settings, which is not possible later.

    The built-in trainer does so itself.
    """
    wanted = any(os.environ.get(name, "").strip() for name in DEVICES)
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not wanted or os.environ.get("CLUSTER_TRAINER_ENGINE", "").strip() == "off":
        return
    if main is None or main.name != TRAINER:
        from cluster_trainer.distribution.of_script import set_devices_of_script  # noqa: PLC0415

        set_devices_of_script(os.environ)


def _without_collection(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute a module; later collections skip the objects that exist by then.

    If Python has already collected all objects before, later collections do not skip any: a script
    with so many objects may drop some of them later.
    """
    is_early = gc.get_stats()[-1]["collections"] == 0
    gc.disable()
    try:
        execute(module)
    finally:
        if is_early:
            gc.freeze()
        gc.enable()


def _refusing_tensorflow(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return an excepthook that ends a script with 78 if it needs TensorFlow and there is none."""

    def tell(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        before(kind, error, traceback)
        name = str(getattr(error, "name", None))
        if isinstance(error, ModuleNotFoundError) and name.startswith(TENSORFLOW):
            from cluster_trainer.on_jax.no_tensorflow import refuse  # noqa: PLC0415  it ends here

            refuse(name)

    return tell

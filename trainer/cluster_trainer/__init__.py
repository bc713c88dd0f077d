"""Train Keras models on one device, on several GPUs, or on many workers.

Read first: settings/config.py (what can be set), train.py (the run from beginning to end), then
the part you care about: engine/install.py (what Keras's `fit` does otherwise), fits/fit.py (what
each `fit` gets besides, in its order), distribution/strategy.py (devices and
workers), process/exit_code.py (how a run ends, and with which exit code).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster_trainer.api import fit, start_strategy
    from cluster_trainer.settings.task import this_worker

__all__ = ["fit", "start_strategy", "this_worker"]
WHERE = {"fit": "api", "start_strategy": "api", "this_worker": "settings.task"}


def __getattr__(name: str) -> Any:
    """Import a function when it is asked for: TensorFlow comes with the first two."""
    if name in WHERE:
        return getattr(import_module(f"{__name__}.{WHERE[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)

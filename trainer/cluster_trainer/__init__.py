"""Train Keras models on one device, on several GPUs, or on many workers.

Read first: settings/config.py (the settings), train.py (a run from beginning to end), then the part
that you need: engine/install.py (how Keras's `fit` changes), fits/fit.py (the steps around each
`fit`, in order), distribution/strategy.py (devices and workers), process/exit_code.py (how a run
ends, and with which exit code).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster_trainer.api import fit, start_strategy
    from cluster_trainer.loops.mean import mean
    from cluster_trainer.loops.share import share
    from cluster_trainer.settings.task import this_worker

__all__ = ["fit", "mean", "share", "start_strategy", "this_worker"]
WHERE = {
    "fit": "api",
    "mean": "loops.mean",
    "share": "loops.share",
    "start_strategy": "api",
    "this_worker": "settings.task",
}


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: all but the last import TensorFlow."""
    if name in WHERE:
        return getattr(import_module(f"{__name__}.{WHERE[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)

"""Train Keras models on one device, on several GPUs, or on many workers.

Read first: settings/config.py (what can be set), train.py (the run from beginning to end), then
the part you care about: engine/install.py (what Keras's `fit` does otherwise),
fits/kept/kept_fit.py (what each `fit` gets besides), distribution/strategy.py (devices and
workers), process/lifecycle.py (how a run ends, and with which exit code).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster_trainer.api import fit, start_strategy

__all__ = ["fit", "start_strategy"]


def __getattr__(name: str) -> Any:
    """Import the functions when they are asked for: TensorFlow comes with them."""
    if name in __all__:
        from cluster_trainer import api  # noqa: PLC0415

        return getattr(api, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)

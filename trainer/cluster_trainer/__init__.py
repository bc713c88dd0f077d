"""Train a Keras model under tf.distribute, as described by TRAINER_ variables and flags.

Read first: config.py (what can be set), train.py (the run from beginning to end), then the part
you care about: data/order.py (who sees which example when), loop.py (the compiled steps),
strategy.py (devices and workers), lifecycle.py (how a run ends, and with which exit code).

The package is `cluster_trainer`; `trainer` is its name in this repository and on the command line
(`python -m trainer`). Scripts of your own import from it, by whichever of the two is not their own
package: `from cluster_trainer import fit, start_strategy` (api.py).
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

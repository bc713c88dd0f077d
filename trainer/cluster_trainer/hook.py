"""What Keras's import calls: from here on any script's `fit` is the image's own.

The last lines of the installed Keras's `keras/__init__.py` do so (patches/).
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

from cluster_trainer.engine.install import install as install_engine
from cluster_trainer.engine.progress_bar import be_plain_without_a_terminal
from cluster_trainer.engine.running import Running


def install() -> None:
    """Replace what of Keras the image does otherwise, unless CLUSTER_TRAINER_ENGINE is off.

    Raises:
        ValueError: it is something else.
    """
    wanted = os.environ.get("CLUSTER_TRAINER_ENGINE") or "on"
    if wanted not in ("on", "off"):
        message = f'CLUSTER_TRAINER_ENGINE: received "{wanted}"; accepted: on or off'
        raise ValueError(message)
    if wanted == "on":
        install_engine(_kept)
        if (os.environ.get("TRAINER_COLLECTIVES", "").strip() or "auto") in ("auto", "ring"):
            _offer_ring()
        be_plain_without_a_terminal(os.environ)


def _kept(
    run: Callable[..., Any], given: inspect.BoundArguments, call: Running, number: int
) -> Any:
    """Run a `fit` with checkpoints; its parts are imported when the first one is called."""
    from cluster_trainer.fits import script_fits  # noqa: PLC0415

    return script_fits.fit(run, given, call, number, os.environ)


def _offer_ring() -> None:
    """Let a script that makes no strategy train on all workers, once it asks for their sums."""
    from cluster_trainer.distribution.ring import offer_to_script  # noqa: PLC0415

    offer_to_script(os.environ)

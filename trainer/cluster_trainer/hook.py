"""What Keras's import calls: from here on any script's `fit` is the image's own.

The last lines of the installed Keras's `keras/__init__.py` do so (patches/).
"""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cluster_trainer.engine.first_batch import mode as first_batch
from cluster_trainer.engine.install import install as install_engine
from cluster_trainer.engine.progress_bar import be_plain_without_a_terminal
from cluster_trainer.engine.running import Running
from cluster_trainer.problems import ExitCode, Problem, render
from cluster_trainer.settings.config import ACCEPTED


def install() -> None:
    """Replace what of Keras the image does otherwise, unless CLUSTER_TRAINER_ENGINE is off.

    Raises:
        SystemExit: with code 78, after a message, if that is something else, or so are
            TRAINER_COLLECTIVES and TRAINER_FIRST_BATCH.
    """
    if _one_of("CLUSTER_TRAINER_ENGINE", ("on", "off"), "on or off") == "on":
        install_engine(_kept, _called)
        sys.excepthook = _telling_of_lost_peers(sys.excepthook)
        ways = ("auto", "tensorflow", "ring")
        accepted = ACCEPTED["first_batch"]
        first_batch.use(_one_of("TRAINER_FIRST_BATCH", first_batch.MODES, accepted))
        if _one_of("TRAINER_COLLECTIVES", ways, ACCEPTED["collectives"]) != "tensorflow":
            _offer_ring()
        be_plain_without_a_terminal(os.environ)


def _kept(
    run: Callable[..., Any], given: inspect.BoundArguments, call: Running, number: int
) -> Any:
    """Run a `fit` with checkpoints; its parts are imported when the first one is called."""
    from cluster_trainer.fits import script_fits  # noqa: PLC0415

    return script_fits.fit(run, given, call, number, os.environ)


def _called(run: Callable[[], Any], strategy: Any) -> Any:
    """Run another call than `fit`; there is nothing to do where this worker is alone."""
    if not os.environ.get("TF_CONFIG"):
        return run()
    from cluster_trainer.fits import script_calls  # noqa: PLC0415

    return script_calls.call(run, strategy, os.environ)


def _telling_of_lost_peers(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return what ends a script with exit code 75 whose own code has met with a lost peer."""

    def tell(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        before(kind, error, traceback)
        if isinstance(error, Exception) and os.environ.get("TF_CONFIG"):
            from cluster_trainer.fits import script_calls  # noqa: PLC0415

            script_calls.end_unless_crashed(error, os.environ)

    return tell


def _one_of(variable: str, known: Sequence[str], accepted: str) -> str:
    """Return what a variable is set to; the first of those known if it is not.

    Raises:
        SystemExit: it is something else.
    """
    wanted = os.environ.get(variable, "").strip() or known[0]
    if wanted not in known:
        print(render([Problem(variable, wanted, accepted)]), file=sys.stderr)  # noqa: T201
        raise SystemExit(ExitCode.BAD_CONFIGURATION)
    return wanted


def _offer_ring() -> None:
    """Let a script that makes no strategy train on all workers, once it asks for their sums."""
    from cluster_trainer.distribution.ring import offer_to_script  # noqa: PLC0415

    offer_to_script(os.environ)

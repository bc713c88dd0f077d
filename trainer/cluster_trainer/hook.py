"""Called when Keras is imported: puts the engine under the `fit` of every script.

The last lines of the installed Keras's `keras/__init__.py` call it (patches/). It replaces Keras's
`fit` by the `fit_announced` of engine/calls/announced.py, which calls `_kept`.
"""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.engine.first_batch.mode import MODES, FirstBatchMode
from cluster_trainer.engine.install import install as install_engine
from cluster_trainer.engine.install import install_of_devices
from cluster_trainer.engine.progress_bar import can_draw
from cluster_trainer.engine.running import Running
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem, render
from cluster_trainer.process.exit_code import end_by, leave_script
from cluster_trainer.process.forked import end_if_stuck, note_fork
from cluster_trainer.settings.refusals import ACCEPTED
from cluster_trainer.settings.task import as_started, from_environment, names_task, was_replaced

DEVICES = ("TRAINER_DEVICES", "TRAINER_LOGICAL_CPUS")
SEVERAL = 2
log = logging.getLogger("trainer")


def install() -> None:
    """Replace parts of Keras, unless CLUSTER_TRAINER_ENGINE is off.

    Raises:
        SystemExit: CLUSTER_TRAINER_ENGINE, TRAINER_COLLECTIVES or TRAINER_FIRST_BATCH has an
            invalid value; code 78, after a message.
    """
    # Without an entrypoint, this process and its child processes count as one start.
    os.environ.setdefault("START_ID", os.urandom(8).hex())
    if _one_of("CLUSTER_TRAINER_ENGINE", ("on", "off"), "on or off") == "on":
        _begin_log()
        wanted = _one_of("TRAINER_FIRST_BATCH", MODES, ACCEPTED["first_batch"])
        mode = FirstBatchMode(wanted, available_bytes)
        install_engine(_kept, _called, end_if_stuck, mode, plain_bars=not can_draw(os.environ))
        os.register_at_fork(after_in_child=note_fork)
        sys.excepthook = _telling_of_lost_peers(sys.excepthook)
        ways = ("auto", "tensorflow", "ring")
        if _one_of("TRAINER_COLLECTIVES", ways, ACCEPTED["collectives"]) != "tensorflow":
            _offer_ring()
        local_devices.offer(_devices, install_of_devices)


def _kept(run: Callable[..., Any], given: inspect.BoundArguments, call: Running) -> Any:
    """Run a `fit` with checkpoints; its parts are imported when the first one is called."""
    from cluster_trainer.fits.fit import fit  # noqa: PLC0415
    from cluster_trainer.fits.process_state import present  # noqa: PLC0415

    return fit(present(), run, given, call, _environ())


def _called(run: Callable[[], Any], strategy: Any) -> Any:
    """Run a call other than `fit`. On a single worker, only refusals end the process.

    Raises:
        SystemExit: the call is refused; code 78, after a message.
    """
    environ = _environ()
    if not environ.get("TF_CONFIG"):
        with _refusals_end(environ):
            return run()
    from cluster_trainer.fits.process_state import present  # noqa: PLC0415
    from cluster_trainer.fits.script.calls import call  # noqa: PLC0415

    return call(present(), run, strategy, environ)


@contextmanager
def _refusals_end(environ: Mapping[str, str]) -> Iterator[None]:
    """End the process (78) after a refusal in the context; an exception may end only a thread."""
    try:
        yield
    except ConfigurationError as error:
        end_by(error, from_environment(environ).num_workers)
        raise


def _telling_of_lost_peers(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return an excepthook that ends a script with 75 if its own code fails because of a lost peer.

    If its own code was refused, the hook ends it with 78, after a message without a traceback.
    """

    def tell(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        if not isinstance(error, ConfigurationError):
            before(kind, error, traceback)
        environ = _environ()
        if isinstance(error, Exception) and names_task(environ.get("TF_CONFIG", "")):
            from cluster_trainer.fits.script.calls import end_unless_crashed  # noqa: PLC0415

            end_unless_crashed(error, environ)

    return tell


def _environ() -> Mapping[str, str]:
    """Return the environment, without the script's own TF_CONFIG if that names no task.

    Only TensorFlow judges its content; it never causes an error here.
    """
    environ = as_started(os.environ)
    text = environ.get("TF_CONFIG", "")
    if names_task(text) or not was_replaced(text):
        return environ
    _warn_of_no_task()
    return {**environ, "TF_CONFIG": ""}


@cache
def _warn_of_no_task() -> None:
    log.warning(
        "the script's own TF_CONFIG does not say which task this process is, so it counts as the "
        "only worker"
    )


def _begin_log() -> None:
    """Start the trainer's log, if the entrypoint has started this process."""
    if os.environ.get("STATUS_FILE") or os.environ.get("TF_CONFIG"):
        from cluster_trainer.fits.script.log import begin_log  # noqa: PLC0415

        begin_log(_environ())


def _one_of(variable: str, known: Sequence[str], accepted: str) -> str:
    """Return a variable's value, or the first accepted value if it is not set.

    Raises:
        SystemExit: the value is not accepted; code 78, after a message.
    """
    wanted = os.environ.get(variable, "").strip() or known[0]
    if wanted not in known:
        print(render([Problem(variable, wanted, accepted)]), file=sys.stderr)  # noqa: T201
        leave_script(ExitCode.BAD_CONFIGURATION)
    return wanted


def _devices() -> Sequence[str]:
    """Return the devices that train, when the first model is about to; none: TensorFlow's own."""
    is_told = any(os.environ.get(name, "").strip() for name in DEVICES)
    if not is_told and len(tf.config.list_physical_devices("GPU")) < SEVERAL:
        return ()
    from cluster_trainer.distribution.of_script import devices_of_script  # noqa: PLC0415

    with _refusals_end(environ := _environ()):
        return devices_of_script(environ)


def _offer_ring() -> None:
    """Let a script without a strategy train on all workers, once its models need their sums."""
    from cluster_trainer.distribution.ring import offer_to_script  # noqa: PLC0415

    offer_to_script(os.environ)

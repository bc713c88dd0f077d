"""Called when Keras on JAX is imported: joins the other workers, and wraps every `fit`."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NoReturn

import jax
import keras

from cluster_trainer.fits.script.log import begin_log
from cluster_trainer.on_jax.workers.cluster import join, present
from cluster_trainer.on_jax.workers.first_process import joins
from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import ConfigurationError, ExitCode, PeerLostError, Problem, render
from cluster_trainer.process.exit_code import end_by
from cluster_trainer.settings.task import as_started, from_environment

ENGINE = "CLUSTER_TRAINER_ENGINE"
STARTUP_SECONDS = 300
NO_CALL = "no such call: the image divides the work"
ON_BATCH = "train_on_batch"
OWN_LOOP = "an optimizer's apply, outside of fit"


def install() -> None:
    """Join the other workers, and replace parts of Keras, unless CLUSTER_TRAINER_ENGINE is off.

    Raises:
        SystemExit: CLUSTER_TRAINER_ENGINE is neither on nor off; code 78, after a message.
    """
    wanted = os.environ.get(ENGINE, "").strip() or "on"
    if wanted not in {"on", "off"}:
        _leave(ConfigurationError([Problem(ENGINE, wanted, "on or off")]))
    if wanted == "off":
        return
    os.environ.setdefault("START_ID", os.urandom(8).hex())
    environ = as_started(os.environ)
    num_workers = 1
    try:
        task = from_environment(environ)
        num_workers = task.num_workers
        # A second process is not a worker: it computes alone, and must not call `fit`.
        if num_workers > 1 and joins(os.environ):
            begin_log(environ)
            seconds = environ.get("TRAINER_STARTUP_TIMEOUT_SECONDS", "").strip()
            join(task, environ, int(seconds) if seconds.isdecimal() else STARTUP_SECONDS)
    except (ConfigurationError, PeerLostError) as error:
        end_by(error, num_workers, is_script=False)
    _wrap(environ, num_workers)


def _leave(error: ConfigurationError) -> NoReturn:
    print(render(error.problems), file=sys.stderr)  # noqa: T201
    raise SystemExit(int(ExitCode.BAD_CONFIGURATION))


def _wrap(environ: Mapping[str, str], num_workers: int) -> None:
    trainer = keras_jax_names.JAXTrainer
    keras_jax_names.use_iterator(_epoch_iterator())
    trainer.fit = _kept(trainer.fit, environ)
    trainer.jax_state_sync = _synced(trainer.jax_state_sync)
    if num_workers > 1:
        _refuse_others(trainer)


def _refuse_others(trainer: Any) -> None:
    """Refuse other ways to train, or to divide the work, on several workers."""
    trainer.train_on_batch = _refused(trainer.train_on_batch, ON_BATCH, "fit")
    optimizer, library = keras_jax_names.BaseOptimizer, keras_jax_names.distribution_lib
    optimizer.apply = _refused(optimizer.apply, OWN_LOOP, "fit", _is_in_fit)
    distribution = keras.distribution
    for name in ("initialize", "set_distribution"):
        refused = _refused(getattr(library, name), f"keras.distribution.{name}", NO_CALL, _is_none)
        setattr(library, name, refused)
        setattr(distribution, name, refused)
    own = jax.distributed
    own.initialize = _refused(own.initialize, "jax.distributed.initialize", NO_CALL)


def _is_in_fit(*_: Any, **__: Any) -> bool:
    from cluster_trainer.on_jax.steps.step import is_tracing  # noqa: PLC0415  at the first one

    return is_tracing()


def _is_none(*arguments: Any, **keywords: Any) -> bool:
    return [*arguments, *keywords.values()] == [None]


def _epoch_iterator() -> type:
    from cluster_trainer.on_jax.steps.batches import EpochIterator  # noqa: PLC0415

    return EpochIterator


def _kept(keras_fit: Callable[..., Any], environ: Mapping[str, str]) -> Callable[..., Any]:
    signature = inspect.signature(keras_fit)

    @wraps(keras_fit)
    def fit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        from cluster_trainer.on_jax.fit import fit as fit_kept  # noqa: PLC0415  at the first one

        keras_jax_names.assert_compiled(self, "fit")
        return fit_kept(keras_fit, signature.bind(self, *arguments, **keywords), environ)

    return fit


def _synced(keras_own: Callable[..., Any]) -> Callable[..., Any]:
    """Return Keras's method, changed to give the variables arrays of this process only.

    So any worker may use the model alone.
    """

    @wraps(keras_own)
    def jax_state_sync(self: Any) -> None:
        from cluster_trainer.on_jax.steps.step import of_this_process  # noqa: PLC0415

        if state := getattr(self, keras_jax_names.STATE, None):
            setattr(self, keras_jax_names.STATE, jax.tree.map(of_this_process, state))
        keras_own(self)

    return jax_state_sync


def _refused(
    original: Callable[..., Any],
    name: str,
    accepted: str,
    is_allowed: Callable[..., bool] = lambda *_, **__: False,
) -> Callable[..., Any]:
    """Return a function that ends the process with 78, unless the call is allowed."""

    @wraps(original)
    def refuse(*arguments: Any, **keywords: Any) -> Any:
        from cluster_trainer.on_jax.refusals import refuse_call  # noqa: PLC0415

        if is_allowed(*arguments, **keywords):
            return original(*arguments, **keywords)
        try:
            refuse_call(name, accepted)
        except ConfigurationError as error:
            present().refuse(str(error.problems[0]))
            end_by(error, present().count, is_script=False)
        return None

    return refuse

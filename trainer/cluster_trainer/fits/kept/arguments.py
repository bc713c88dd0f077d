"""Adapts the arguments of a fit to this worker: its callbacks, and the epoch to begin with."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.chief import for_worker
from cluster_trainer.callbacks.hook_callback import HookCallback
from cluster_trainer.callbacks.progress_display import ProgressDisplay
from cluster_trainer.callbacks.progress_report import ProgressReport
from cluster_trainer.checkpoints.checkpoint import Stage
from cluster_trainer.engine.running import flat
from cluster_trainer.fits.kept.checkpoint_callback import BeforeOthers, CheckpointCallback
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.shared.data import begin_validations, note_ended, read_on
from cluster_trainer.fits.shared.files import ChiefsFiles
from cluster_trainer.fits.straggler_watch import StragglerWatch
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.results.status_file import status_file

LENGTH = (
    *("epochs", "initial_epoch", "validation_split", "validation_freq", "validation_steps"),
    "validation_batch_size",
)
"""The arguments of `fit` that decide when it ends, and when and on how much it validates."""
log = logging.getLogger("trainer")


def length_described(
    model: keras.Model, arguments: Mapping[str, Any], *, goes_on: bool
) -> dict[str, str]:
    """Return how long a fit trains, and how it validates, which may change when it resumes.

    Args:
        model: the model to train.
        arguments: the arguments that were given to `fit`.
        goes_on: whether it resumes; then the checkpoint decides with which epoch it begins.

    Returns:
        name -> value.
    """
    names = [name for name in LENGTH if not (goes_on and name == "initial_epoch")]
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    found = {name: str(sorted(one) if np.iterable(one) else one) for name, one in given.items()}
    validates = arguments.get("validation_data") is not None
    return found | {
        "validation_data": "given" if validates else "not given",
        "steps_per_execution": str(model.steps_per_execution),
    }


def own_callbacks(
    given: inspect.BoundArguments, options: FitOptions, *, keeps: bool, goes_on: bool
) -> list[Any]:
    """Return the user's callbacks as this worker needs them, and Keras's History.

    Args:
        given: the fit's arguments.
        options: the options of the saved fit.
        keeps: whether the fit has checkpoints.
        goes_on: whether it resumes from a checkpoint.
    """
    callbacks = flat(given.arguments.get("callbacks"))
    callbacks = for_worker(callbacks, is_chief=options.job.task.is_chief, keeps=keeps)
    if not any(isinstance(one, keras.callbacks.History) for one in callbacks):
        callbacks.append(keras.callbacks.History())
    if goes_on:
        for callback in callbacks:
            if isinstance(callback, keras.callbacks.CSVLogger):
                callback.append = True
    return callbacks


def telling_callbacks(
    options: FitOptions,
    checkpoint_callback: CheckpointCallback,
    stragglers: StragglerWatch,
    saved: Callable[[], Mapping[str, Any]],
) -> list[Any]:
    """Return the callbacks that report the fit's progress: on the screen, and for `status`.

    Args:
        options: the options of the saved fit.
        checkpoint_callback: knows the fit's place.
        stragglers: knows which workers are stragglers, and which are missing.
        saved: returns further values for `status`, by StatusFile's names, such as the newest
            checkpoint.
    """
    beat = ProgressDisplay(
        options.tell,
        lambda: checkpoint_callback.place,
        lambda step: _examples_at(step, options, checkpoint_callback),
        slow=lambda: stragglers.slow,
        missing=lambda: stragglers.missing,
    )
    told = ProgressReport(
        status_file(options.job.status_file),
        lambda: checkpoint_callback.place,
        has_limit=options.job.config.stall_timeout_seconds != 0,
        more=lambda: {"examples_per_second": beat.speed, "slow": stragglers.reason, **saved()},
    )
    return [beat, told]


def _examples_at(
    step: int, options: FitOptions, checkpoint_callback: CheckpointCallback
) -> int | None:
    of_data = (
        checkpoint_callback.iterator.source.examples_at if checkpoint_callback.iterator else None
    )
    tell = options.examples_at or of_data
    return tell(step) if tell else None


def with_files_shared(callbacks: list[Any], files: ChiefsFiles) -> list[Any]:
    """Return the callbacks, and between them others that copy the chief's files to all workers.

    If all workers have the same callbacks, files are copied after each callback's hook. Otherwise
    they are copied after the last callback's hook.

    Args:
        callbacks: the user's callbacks for this worker.
        files: copies the files that they write.
    """
    are_alike, each_batch = files.agree()

    def share(hook: str) -> None:
        files.share(is_last=hook == "on_train_end")

    def share_and_end(hook: str) -> None:
        files.end()
        share(hook)

    found = [HookCallback(lambda _: files.begin(), each_batch=each_batch)]
    for one in callbacks:
        found.append(one)
        if are_alike and one is not callbacks[-1]:
            found.append(HookCallback(share, each_batch=False))
    return [*found, HookCallback(share_and_end, each_batch=each_batch)]


def arrange(  # noqa: PLR0913, PLR0917
    given: inspect.BoundArguments,
    callbacks: list[Any],
    own: Sequence[Any],
    options: FitOptions,
    checkpoint_callback: CheckpointCallback,
    files: ChiefsFiles | None,
) -> None:
    """Let a fit's arguments begin at its place, with the checkpoint callback as its last callback.

    Args:
        given: the fit's arguments, which are changed.
        callbacks: the user's callbacks; see `own_callbacks`.
        own: the image's callbacks, which record and report the fit.
        options: the options of the saved fit.
        checkpoint_callback: knows the fit's place.
        files: copies the files that callbacks write on the chief; None: there are no other workers.

    Raises:
        ConfigurationError: the checkpoint has more epochs than the fit is to have.
    """
    arguments, place = given.arguments, checkpoint_callback.place
    if not options.job.task.is_chief:
        arguments["verbose"] = 0  # only the chief shows the progress bar and the lines of epochs
    if options.rehearses:
        arguments |= {"verbose": 0, "callbacks": [*callbacks, checkpoint_callback]}
        return
    epochs = int(arguments.get("epochs", 1))
    if place.epoch > epochs and not place.stopped:
        _refuse_fewer(epochs, place.epoch)
    first = epochs if place.stopped else min(place.epoch, epochs)
    if first == epochs:
        note_ended(given, place)
    else:
        begin_validations(given, place)
        read_on(given)
    shown = callbacks
    if place.stage == Stage.ALL and first == epochs:  # they have nothing left to see
        shown = [one for one in callbacks if isinstance(one, keras.callbacks.History)]
    elif place.stage == Stage.ALL and _averages(given.args[0]):
        log.warning(
            "%scontinues from the averages of the weights (use_ema), with which it had ended",
            options.prefix,
        )
    if files:
        shown = with_files_shared(shown, files)
    before = BeforeOthers(checkpoint_callback.others_begin)
    arguments |= {"initial_epoch": first, "callbacks": [before, *shown, *own, checkpoint_callback]}


def _refuse_fewer(epochs: int, trained: int) -> None:
    """Refuse to return the result of a training that was longer than requested."""
    accepted = f"{trained} or more, the epochs that the checkpoint has trained"
    advice = "TRAINER_RESUME=never starts over, and moves the earlier results aside."
    raise ConfigurationError([Problem("epochs", str(epochs), accepted, advice)])


def _averages(model: keras.Model) -> bool:
    return bool(getattr(model.optimizer, "use_ema", False))

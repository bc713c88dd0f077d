"""Saves and restores checkpoints of a fit on JAX, in the same format as TensorFlow's engine."""

import logging
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.state import states
from cluster_trainer.callbacks.state.grown import Grown
from cluster_trainer.checkpoints.checkpoint import (
    KEPT_STATE,
    RUN,
    UNKNOWN_RUN,
    Checkpoint,
    Stage,
    uncounted,
)
from cluster_trainer.checkpoints.resume import refuse_other_run
from cluster_trainer.on_jax.callbacks import random_state
from cluster_trainer.on_jax.callbacks.stopping import asks_each_batch, is_of_user
from cluster_trainer.on_jax.one_fit import Fit
from cluster_trainer.on_jax.steps.agreement import DIFFERENT
from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import (
    ConfigurationError,
    PeerStoppedError,
    Problem,
    StopRequestedError,
)

BEGINNING, STEP = "the beginning of an epoch", "the end of a step"
STOP, VALUES = "the end of an epoch", "the values at the end of an epoch"
OTHER_DATA = (
    "The data differ from those of the earlier start. Set a seed where they are shuffled or drawn, "
    "or call `keras.utils.set_random_seed` first. To start over, set TRAINER_RESUME=never or "
    "another TRAINER_RUN_DIR."
)
log = logging.getLogger("trainer")


class Keeping(keras.callbacks.Callback):
    """The last callback of a fit: saves its checkpoints, and restores the newest one.

    Args:
        fit: the parts of the fit.
        callbacks: the other callbacks, whose states are saved.

    Attributes:
        place: the fit's current place.
    """

    def __init__(self, fit: Fit, callbacks: Sequence[Any]) -> None:
        super().__init__()
        self._fit, self._callbacks, self._workers = fit, callbacks, fit.workers
        self._found, self._every = fit.found, fit.every
        self._grown: dict[str, Grown] = {}
        self._asks_each_batch = self._shares_files = False
        self._validations = self._validations_before = 0
        self.place = fit.place

    def on_train_begin(self, logs: Any = None) -> None:
        """Give all workers the same values: those of the checkpoint, or the chief's."""
        names = names_of(self._variables())
        told = self._workers.exchange("\n".join(uncounted(names)), "the model's variables")
        if len(set(told)) > 1:
            accepted = "the same on all workers"
            received = f"{len(names)}, which differ between workers"
            raise ConfigurationError([Problem("the model's variables", received, accepted)])
        self._asks_each_batch = asks_each_batch(self._workers, self._callbacks)
        self._begin_files()
        if self._found is not None:
            described, left_out = self._fit.described, self._fit.differing
            refuse_other_run(self._found, described, uncounted(names), left_out)
            saved = self._found.checkpoint
            _warn_of_state(filter(is_of_user, self._callbacks))
            self._put_back(saved)
            self._read_again(saved)
            self.model.stop_training = self.place.stopped
            return
        mine = self._checkpoint().to_bytes() if self._workers.rank == 0 else None
        if self._workers.count > 1:
            content = self._workers.broadcast(mine, 0, "the values to begin with")
            self._put_values_back(Checkpoint.from_bytes(content))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin an epoch; if the fit resumes within it, restore the state again.

        A callback may ask here, or before the first epoch, to stop the fit after one step.
        """
        if self._found is not None and self.place.done:
            self._put_back(self._found.checkpoint)
        self._found = None
        self.place = replace(self.place, epoch=epoch, stage=Stage.TRAINING)
        self._agree_to_stop(BEGINNING)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the step; save if a checkpoint is due, or a worker was asked to stop."""
        self.place = replace(self.place, step=self.place.step + 1, done=batch + 1)
        if self._asks_each_batch:
            self._agree_to_stop(STEP)
        if self._fit.steps.stops:
            self._save()
            self._end()
        if self._every and self.place.step % self._every == 0:
            self._save()

    def on_test_begin(self, logs: Any = None) -> None:
        """Read validation data, unless they are arrays, to where the earlier start left them."""
        iterator = getattr(self.model, keras_jax_names.VALIDATION, None)
        if iterator is not None and self._validations_before:
            with random_state.unchanged():
                iterator.pass_by(self._validations_before)
        self._validations_before = 0

    def on_test_end(self, logs: Any = None) -> None:
        """Count the validation."""
        self._validations += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Agree whether to stop, align the workers' values, and save."""
        self._agree_to_stop(STOP)
        self._align(f"at the end of epoch {epoch + 1}")
        self.place = replace(
            self.place, epoch=epoch + 1, done=0, stage=Stage.EPOCH, stopped=self.model.stop_training
        )
        self._share_files(is_last=False)
        self._save()
        if self._workers.any(bool(self._fit.stop.signal_number), STOP):
            self._end()

    def on_train_end(self, logs: Any = None) -> None:
        """Save the final checkpoint, and wait until it is written."""
        if self._found is not None and self._fit.had_ended:  # Keras may average the weights again
            self._put_values_back(self._found.checkpoint)
            return
        self._align("at the end of the fit")
        self._share_files(is_last=True)
        self.place = replace(self.place, stage=Stage.ALL)
        self._save()
        self._fit.saver.wait()

    def _agree_to_stop(self, when: str) -> None:
        """Stop the fit on all workers if a callback of one worker has stopped it."""
        is_stopped = self._workers.any(bool(self.model.stop_training), when)
        self.model.stop_training = is_stopped

    def _begin_files(self) -> None:
        if files := self._fit.files:
            self._shares_files = files.are_alike()
            files.share_best()
            files.begin()

    def _share_files(self, *, is_last: bool) -> None:
        """Give all workers the files that the chief's callbacks have written."""
        if self._fit.files and self._shares_files:
            self._fit.files.share(is_last=is_last)

    def _align(self, when: str) -> None:
        """Give all workers the chief's values if theirs differ."""
        if self._workers.count == 1:
            return
        digest = 0
        for variable in self._variables():
            digest = zlib.crc32(np.ascontiguousarray(variable.value).tobytes(), digest)
        if len(set(self._workers.gather(digest, VALUES))) == 1:
            return
        log.warning(DIFFERENT, when)
        mine = self._checkpoint().to_bytes() if self._workers.rank == 0 else None
        content = self._workers.broadcast(mine, 0, "the first worker's values")
        self._put_values_back(Checkpoint.from_bytes(content))

    def _end(self) -> None:
        self._fit.saver.wait()
        if self._fit.stop.signal_number:
            raise StopRequestedError(self._fit.stop.signal_number)
        raise PeerStoppedError

    def _read_again(self, saved: Checkpoint) -> None:
        """Read the data up to the checkpoint's place; see steps/batches.py."""
        place, batches = self.place, self._fit.batches
        self._validations = self._validations_before = saved.progress["validations"]
        self._fit.programs.update(saved.progress["programs"])
        if batches.iterator is None or place.stage == Stage.ALL:
            return
        with random_state.unchanged():
            batches.iterator.read_again(place.epoch - place.first, place.done)
        digest = saved.progress["data"]
        if batches.digest != digest:
            accepted = f"{digest:08x}, as until the checkpoint of step {place.step}"
            received = f"digest {batches.digest:08x}"
            raise ConfigurationError([Problem("the data", received, accepted, OTHER_DATA)])

    def _save(self) -> None:
        if self._every:
            if self._fit.files:
                self._fit.files.share_best()
            self._fit.saver.save(self._checkpoint())

    def _variables(self) -> list[Any]:
        variables = [*self.model.variables, *self.model.optimizer.variables]
        return list({id(one): one for one in variables}.values())

    def _checkpoint(self) -> Checkpoint:
        self.model.jax_state_sync()
        variables = self._variables()
        arrays = [np.array(one.value) for one in variables]
        metrics = [np.array(one.value) for one in self.model.metrics_variables]
        progress = {
            RUN: UNKNOWN_RUN,
            "place": asdict(self.place),
            "data": self._fit.batches.digest,
            "programs": dict(self._fit.programs),
            "validations": self._validations,
            "logs": {},
            "callbacks": states.taken(self._callbacks, arrays, self._grown),
            "metrics": states.as_json(metrics, arrays),
            "random": states.as_json(random_state.taken(), arrays),
            "saved_at": time.time(),
        }
        names = names_of(variables)
        names += [f"{KEPT_STATE}{index}" for index in range(len(names), len(arrays))]
        place, described = self.place, dict(self._fit.described)
        return Checkpoint(place.step, place.stage, described, progress, names, arrays)

    def _put_values_back(self, saved: Checkpoint) -> None:
        for variable, array in zip(self._variables(), saved.arrays, strict=False):
            variable.assign(_typed(array, variable))
        keras_state = states.from_json(saved.progress["random"], saved.arrays)["keras"]
        random_state.put_generator_back(keras_state)

    def _put_back(self, saved: Checkpoint) -> None:
        self._put_values_back(saved)
        metrics = states.from_json(saved.progress["metrics"], saved.arrays)
        for variable, array in zip(self.model.metrics_variables, metrics, strict=True):
            variable.assign(_typed(np.asarray(array), variable))
        kept = states.from_json(saved.progress["callbacks"], saved.arrays)
        states.put_back(self._callbacks, kept)
        random_state.put_back(states.from_json(saved.progress["random"], saved.arrays))


def _warn_of_state(callbacks: Iterable[Any]) -> None:
    """Warn of callbacks that resume without their earlier state."""
    for one in callbacks:
        if not states.has_state(one):
            log.warning(
                "the callback %s resumes without its earlier state, if it has one. Give it "
                "`get_state()` and `set_state(state)`; checkpoints then keep its state",
                type(one).__name__,
            )


def fit_folder(folder: Path) -> Path:
    """Return the folder of a fit's checkpoints."""
    return folder / "checkpoints"


def names_of(variables: Sequence[Any]) -> list[str]:
    """Return each variable's path, dtype and shape, in the format of TensorFlow's engine."""
    sizes = [",".join(map(str, one.shape)) for one in variables]
    return [f"{one.path} {one.dtype}[{size}]" for one, size in zip(variables, sizes, strict=True)]


def _typed(array: np.ndarray, variable: Any) -> np.ndarray:
    """Return an array in the variable's dtype: NumPy's files store bfloat16 as two plain bytes."""
    return array.view(variable.value.dtype) if array.dtype.kind == "V" else array

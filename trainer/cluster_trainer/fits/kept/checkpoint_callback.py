"""Saves checkpoints of a fit, for any model and any script.

This happens at the end of an epoch, in this order. In each exchange, all workers wait for the
slowest one.

1. `EpochIterator._epoch` calls `CheckpointCallback.after_training`. If the fit has validations, it
   saves a checkpoint, so that the steps need not be done again. In `_is_room` the workers exchange
   whether there is time for it. If a callback has stopped the epoch, this is skipped.
2. Keras requests the epoch's metrics from `get_metrics_result_or_logs` in engine/install.py. There
   `statistics.average` averages BatchNorm's statistics over all replicas, which is an exchange. The
   metrics need no exchange: the last call has returned those of all replicas (`StepLogs.taken`).
3. Keras's `evaluate` validates on all workers, call by call; see engine/epoch_iterator.py. If the
   workers agree to end the fit here, none of them saves. The fit then resumes from an earlier
   checkpoint.
4. Keras calls `on_epoch_end` of the user's callbacks on all workers. Callbacks that only write are
   called on the chief alone (callbacks/chief.py). After each callback, or after the last one,
   `ChiefsFiles.share` gives the chief's files to the other workers, which wait for the chief.
5. Keras calls `on_epoch_end` of the image's own: `ClusterTrainerRecords`, `ProgressDisplay`,
   `ProgressReport`. They exchange nothing.
6. Keras calls `CheckpointCallback.on_epoch_end`. If a callback of one worker has stopped the fit,
   an exchange stops it on all workers. Then `_average` averages statistics, and `alike.keep`
   compares the workers' values, which a callback of one worker may have changed. In `_is_room` the
   workers exchange whether one of them is still writing, or would lose too much time. If not, all
   of them call `_save`.
7. `_save` shares ModelCheckpoint's files and gathers the state that Keras does not list
   (`Tracked.take`), both in exchanges, and copies the rest. A thread writes the copy (`Saver.save`)
   while training continues, so no worker waits for another's disk.

After the last epoch, `on_train_end` saves once more and waits until this worker has written it.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import keras
import numpy as np
from keras.callbacks import ModelCheckpoint

from cluster_trainer.callbacks.state import states
from cluster_trainer.callbacks.state.grown import Grown
from cluster_trainer.callbacks.state.tracked import Tracked
from cluster_trainer.callbacks.state.unkept import OF_MODEL, Unkept
from cluster_trainer.checkpoints.checkpoint import (
    KEPT_STATE,
    RUN,
    Checkpoint,
    Place,
    Stage,
    variable_names,
)
from cluster_trainer.checkpoints.saver import Saver, warn_unsaved
from cluster_trainer.checkpoints.state import State
from cluster_trainer.checkpoints.without_weights import gone_from
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.replicas.metrics import left_totals
from cluster_trainer.engine.replicas.metrics.saved_rows import MetricRows
from cluster_trainer.engine.replicas.random_layers import global_seed
from cluster_trainer.engine.running import BEGINNING_HOOKS, prepares
from cluster_trainer.engine.same_values import alike
from cluster_trainer.fits.kept.consistency_check import rounds_described
from cluster_trainer.fits.kept.coordinator import Coordinator
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem, listed

log = logging.getLogger("trainer")
SHARE = 0.1
"""The share of the time between two checkpoints that an epoch's end may cost at most."""
SAVING = "whether to save"


class BeforeOthers(keras.callbacks.Callback):
    """The first of a fit's callbacks: reports that the other callbacks get the model next.

    Args:
        tell: is called just before they do.
    """

    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self._tell = tell

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._tell()


class CheckpointCallback(keras.callbacks.Callback):
    """Saves checkpoints of a fit, and restores the newest of them at the beginning.

    Args:
        saver: writes the checkpoints.
        every: the number of steps between two checkpoints; None: none are saved.
        found: the newest checkpoint of an earlier start; None: there is none.
        coordinator: connects this callback with the rest of the fit.
        callbacks: the other callbacks, whose states are saved.
        first: the epoch to begin with if there is no checkpoint.

    Attributes:
        place: the fit's current place.
        logs_of_epoch: the logs of an epoch whose validation was interrupted.
        held_up: the step of the last checkpoint, and the seconds for which it delayed training.
        seconds_held_up: the seconds for which all checkpoints of this start have delayed training.
        iterator: the iterator of the training batches; None until it is known.
        has_begun: whether the model may differ from its state at the beginning of the fit.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        saver: Saver,
        every: int | None,
        found: Checkpoint | None,
        coordinator: Coordinator,
        callbacks: Sequence[Any],
        first: int = 0,
    ) -> None:
        super().__init__()
        self._saver, self._every, self._found, self._coordinator = saver, every, found, coordinator
        # If auto has chosen a number, this worker learned it when the checkpoint was found.
        self._described = {**coordinator.options.described, **rounds_described()}
        self._callbacks = callbacks
        self._trainable: dict[int, bool] = {}
        self.place = found.place if found else Place(epoch=first, first=first)
        self.held_up: tuple[int, float] | None = None
        self.seconds_held_up = self._saved_at = 0.0
        self.iterator: Any = None
        self.has_begun = False
        self.logs_of_epoch = found.progress["logs"] if found else {}
        self._has_weights = True
        self._grown: dict[str, Grown] = {}
        self._unkept = Unkept([])
        self._unkept_before = found.progress.get("unkept", {}) if found else {}

    def others_begin(self) -> None:
        """Note that the other callbacks get the model; a user's own callback may train it."""
        self.has_begun = bool(prepares(self._callbacks, BEGINNING_HOOKS))

    def attach(self, iterator: Any) -> None:
        """Let the iterator of the training batches begin at the fit's place."""
        self.iterator = iterator
        place = self.place
        is_over = place.stage == Stage.TRAINED
        epochs = place.epoch - place.first + is_over
        iterator.begin_at(epochs, place.passes, place.seen, place.done, is_over=is_over)

    @property
    def has_weights(self) -> bool:
        """Whether this worker has the weights of the fit's result; see fits/kept/ended_fits.py."""
        return self._has_weights

    @property
    def keeps(self) -> bool:
        """Whether the fit may resume from a checkpoint, in another process."""
        return self._every is not None

    def puts_all_back(self) -> bool:
        """Tell whether a checkpoint restores the model before a user's callback can use it.

        All workers call this, and get the same answer.
        """
        if self._found is None:
            return False
        return not self._coordinator.any(
            bool(prepares(self._callbacks, BEGINNING_HOOKS)), "its beginning"
        )

    def let_go(self) -> None:
        """Release the data and the checkpoint, because the fit is over or was interrupted."""
        if self.iterator:
            self.iterator.abandon()
        self.iterator = self._found = None

    def steps_left(self) -> int | None:
        """Return the number of steps until a checkpoint is due, or a call must end; None: any."""
        step = self.place.step
        left = [cut - step for cut in self._coordinator.cuts if cut > step]
        if self._every:
            left.append(self._every - step % self._every)
        return min(left, default=None)

    def after_call(self, steps: int, done: int) -> None:
        """Save if that is due after a call of steps, and end the fit if the workers have agreed.

        All workers call this.

        Args:
            steps: the number of steps in the call.
            done: the number of steps done in the epoch.
        """
        before = self.place.step
        self._move(Stage.TRAINING, step=before + steps, done=done)
        # A call of whole rounds may end behind the step at which one was due.
        is_due = self._every and self.place.step // self._every > before // self._every
        if self._coordinator.stops():
            self._save()
        else:
            self._coordinator.rounds.after_call(self.place.step)
        if is_due and not self._coordinator.stops():
            self._average()
            if self._is_room():
                self._save(another_follows=done == self.params.get("steps"))
        self._coordinator.meet()

    def after_last_call(self, steps: int, done: int) -> None:
        """Note a call after which a callback has stopped the fit; see `after_call`."""
        self._move(Stage.TRAINING, step=self.place.step + steps, done=done)

    def after_training(self) -> None:
        """Note that an epoch's steps are done; save before its validation, if there is one."""
        self._move(Stage.TRAINED)
        if self._coordinator.validates and self._is_room(at_an_end=True):
            self._save(another_follows=True)

    def on_train_begin(self, logs: Any = None) -> None:
        """Compare the workers, and restore variables and callbacks, or save the first checkpoint.

        The other callbacks have begun by now.
        """
        if not self._coordinator.options.describes_data:
            self._described |= self.iterator.described
        if self._found is None:
            if ring_of(self.model.distribute_strategy):
                self.model.train_function.create_variables(self.iterator)
                alike.make(self.model, [*self.variables(), *self._global_seed()])
            self._coordinator.check(self._described, self._state().names)
            self._trainable = _trainable_layers(self.model)
            if ring_of(self.model.distribute_strategy):
                self._save()  # to resume from if a worker is lost before the next
            self.has_begun = True
            self._unkept = Unkept(self._callbacks, self.model)
            return
        self._check_found(self._found)
        self.has_begun = True
        self._put_back(self._found)
        self._warn_of_unkept()
        is_over = self._is_over()
        if draws := [] if is_over else self.model.train_function.seeded_draws(self.iterator):
            _warn_of_draws(listed(draws))
        self.model.stop_training = self.place.stopped

    def _check_found(self, found: Checkpoint) -> None:
        """Refuse a checkpoint that does not fit the model."""
        problems: list[Problem] = []
        if self.model.train_function.create_variables(self.iterator):
            problems += self._other_layers(found)
        try:
            self._coordinator.check(self._described, self._state().names)
        except ConfigurationError as error:
            problems += error.problems
        problems += self._tracked().missing(found.progress.get("tracked", {}))
        problems += self._gone_weights(found)
        if problems:
            raise ConfigurationError(problems)

    def _warn_of_unkept(self) -> None:
        """Warn of callbacks and of a model whose state had changed, but is not in the checkpoint.

        They start over, or are not called at all if the fit had ended. A script may use what they
        have collected after its fit.
        """
        self._unkept = Unkept(self._callbacks, self.model)
        for callback, names in self._unkept_before.items():
            if callback == OF_MODEL:
                _warn_of_attributes(listed(names))
            else:
                _warn_of_state(callback, listed(names), is_over=self._is_over())

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin an epoch; if a fit resumes within it, restore the state and the metrics again."""
        if self._found is not None and self.place.done:
            self._put_back(self._found)  # the other callbacks have begun this epoch twice now
            if self.place.stage == Stage.TRAINING:
                rows = self._found.progress["metrics"]
                MetricRows(self.model).put_back(states.from_json(rows, self._found.arrays))
                left_totals.note_own(self.model)
        self._found = None
        self._move(self.place.stage, epoch=epoch)
        # A callback may have set it for this epoch.
        alike.keep(self.model, statistics.rates(self.model), "before an epoch")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._warn_of_other_layers()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = self._coordinator.any(bool(self.model.stop_training))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = self._coordinator.any(bool(self.model.stop_training))
        is_stopped = bool(self.model.stop_training)
        self._move(Stage.EPOCH, epoch=epoch + 1, done=0, stopped=is_stopped)
        is_last = is_stopped or epoch + 1 == self.params.get("epochs")
        self._average()
        alike.keep(self.model, self.variables(), "after an epoch")
        if self._is_room(at_an_end=True):
            self._save(another_follows=is_last)

    def on_train_end(self, logs: Any = None) -> None:
        self.iterator.end()
        self._coordinator.rounds.end()
        self._move(Stage.ALL)
        if self._has_weights:
            alike.keep(self.model, self.variables(), "after the last callbacks")
            self._save()
        self._saver.wait()

    def _move(self, stage: Stage, **changes: Any) -> None:
        passes, seen = self.iterator.position if self.iterator else (0, 0)
        kept = asdict(self.place) | {"passes": passes, "seen": seen, "stage": stage} | changes
        self.place = Place(**kept)

    def _warn_of_other_layers(self) -> None:
        """Warn before the first call if a process that resumes would train different layers."""
        before, self._trainable = self._trainable, {}
        now = _trainable_layers(self.model) if before and self.keeps else {}
        if any(trains != before.get(layer, trains) for layer, trains in now.items()):
            log.warning(
                "A callback has frozen or thawed layers after `on_train_begin`: after a kill this "
                "fit cannot resume from its checkpoints. Do it in `on_train_begin`."
            )

    def _other_layers(self, saved: Checkpoint) -> list[Problem]:
        """Return a problem if the checkpoint's process trained another number of variables."""
        trains, trained = self.model.train_function.trains, saved.progress.get("trains")
        if trained is None or trains == trained:
            return []
        advice = (
            "A callback has frozen layers, or a script thawed some without `compile`, at a "
            "point that this process does not reach again. Do it before `compile`, or in a "
            "callback's `on_train_begin`."
        )
        accepted = f"{trained}, as until the checkpoint of step {saved.step}"
        return [Problem("the model's variables that are trained", str(trains), accepted, advice)]

    def _gone_weights(self, saved: Checkpoint) -> list[Problem]:
        """Return a problem if the fit is to train further, but its weights were removed."""
        self._has_weights = not gone_from(saved.progress)
        if self._has_weights or self._is_over():
            return []
        advice = (
            "It had ended, and its weights were removed when a later fit had trained the same "
            "model. To start over, set TRAINER_RESUME=never or another TRAINER_RUN_DIR."
        )
        epochs = self.params["epochs"]
        return [Problem("the epochs of the fit", f"{epochs}", f"{self.place.epoch}", advice)]

    def _put_back(self, saved: Checkpoint) -> None:
        state = self._state()
        random_state = states.from_json(saved.progress["random"], saved.arrays)
        with self.model.distribute_strategy.scope():
            gone = gone_from(saved.progress)
            state.put_back(saved.arrays[: len(state.names)], gone)
            self._coordinator.note_values(self.variables(), gone)
            if "keras" in random_state:
                _put_global_seed_back(random_state["keras"])
            elif len(variable_names(saved)) > len(state.names):  # see variable_names
                _put_global_seed_back(saved.arrays[len(state.names)])
            if alike.renew_constants(self.model):
                self.model.train_function.forget_traces()
                self.model.test_function = self.model.predict_function = None
            self._tracked().put_back(saved.progress.get("tracked", {}), saved.arrays)
        left_totals.note_left(self.model)
        self._put_callbacks_back(saved)
        _put_random_back(random_state)

    def _put_callbacks_back(self, saved: Checkpoint) -> None:
        """Restore callbacks, but not the best value of a ModelCheckpoint whose file is lost.

        Such a callback saves the next model, even if that is not better.
        """
        writing = [one for one in self._callbacks if isinstance(one, ModelCheckpoint)]
        before = [(one, one.best) for one in writing]
        states.put_back(
            self._callbacks, states.from_json(saved.progress["callbacks"], saved.arrays)
        )
        lost = self._coordinator.files.share_best()
        for callback, best in before:
            if callback not in lost or callback.best == best:
                continue
            callback.best = best
            if not self._is_over():
                log.warning(
                    "%s is no longer on any worker's disk: the best model is lost, and "
                    "the next one is saved, better or not",
                    callback.filepath,
                )

    def _is_over(self) -> bool:
        """Tell whether nothing is left to train; a finished fit may be given more epochs."""
        place = self.place
        had_ended = place.stopped or place.epoch >= self.params["epochs"]
        return place.stage == Stage.ALL and had_ended

    def _is_room(self, *, at_an_end: bool = False) -> bool:
        """Tell whether to save a checkpoint here; all workers call this, and get the same answer.

        No checkpoint is saved while a worker is still writing one. At the end of an epoch, none is
        saved if it would cost more than SHARE of the time since the last checkpoint.

        Args:
            at_an_end: whether this is the end of an epoch, or of its steps.
        """
        if self._every is None or self._coordinator.rounds.is_measuring:
            return False
        passed = time.monotonic() - self._saved_at
        is_too_soon = at_an_end and passed * SHARE < self._cost()
        return not self._coordinator.any(self._saver.is_busy or is_too_soon, SAVING)

    def _cost(self) -> float:
        held_up = self.held_up[1] if self.held_up else 0.0
        return held_up + self._saver.newest_seconds

    def _average(self) -> None:
        """Average statistics whenever a checkpoint is due, even if it is not saved.

        Otherwise the results of the training would depend on the speed of the disk.
        """
        if self._every is not None:
            statistics.average(self.model, self.model.distribute_strategy)

    def _save(self, *, another_follows: bool = False) -> None:
        is_measuring = self._coordinator.rounds.is_measuring
        if self._every is None or (is_measuring and self.place.step):
            return  # a fit that is measured begins again at step 0
        self._saver.make_room()  # so that there is only one copy of all variables in memory
        began = self._saved_at = time.monotonic()
        self._coordinator.files.share_best()  # the best value is in the checkpoint
        self._average()
        rows = self._metric_rows()
        state = self._state()
        arrays: list[Any] = [None] * len(state.names)
        tracked = self._tracked().take(arrays)
        try:  # the rest does not communicate with the other workers
            checkpoint = self._checkpoint(state, arrays, rows, tracked)
        except Exception as error:  # noqa: BLE001  as where there is no memory for a copy
            warn_unsaved(self.place.step, error)
            return
        self._saver.save(checkpoint, another_follows=another_follows)
        self.held_up = self.place.step, time.monotonic() - began
        self.seconds_held_up += self.held_up[1]

    def _checkpoint(
        self, state: State, arrays: list[Any], rows: np.ndarray | None, tracked: dict[str, Any]
    ) -> Checkpoint:
        arrays[: len(state.names)] = state.take()
        progress = {
            RUN: self._coordinator.run_number,
            "place": asdict(self.place),
            "seed": self._coordinator.seed,
            "logs": _numbers(self.model.train_function.logs),
            "trains": self.model.train_function.trains,
            "callbacks": states.taken(self._callbacks, arrays, self._grown),
            "metrics": states.as_json(rows, arrays),
            "random": states.as_json(_random_state(), arrays),
            "tracked": tracked,
            "unkept": self._unkept.changed(self._unkept_before),
        }
        others = range(len(state.names), len(arrays))
        names = [*state.names, *(f"{KEPT_STATE}{index}" for index in others)]
        place = self.place
        described = self._described | rounds_described()
        return Checkpoint(place.step, place.stage, described, progress, names, arrays)

    def _metric_rows(self) -> np.ndarray | None:
        """Return the values of the metrics; None outside of an epoch, because they start over."""
        is_within = self.place.stage == Stage.TRAINING and self.place.done > 0
        return MetricRows(self.model).take() if is_within else None

    def _state(self) -> State:
        return State(self.variables())

    def _tracked(self) -> Tracked:
        """Return the state that is not in variables of the model, optimizers, metrics or seeds."""
        known = [*self.variables(), *statistics.of_metrics(self.model), *global_seed()]
        assigned = [*self.model.train_function.assigned.values()]
        return Tracked(self.model, self._callbacks, known, assigned)

    def variables(self) -> list[Any]:
        """Return the variables of the model and its optimizers that exist by now."""
        variables = [*self.model.variables]
        for optimizer in keras_names.optimizers_of(self.model):
            variables += optimizer.variables
        return list({id(one): one for one in variables}.values())

    def _global_seed(self) -> list[Any]:
        """Return the state of Keras's global generator, if all workers have one by now."""
        state = global_seed()
        return [] if self._coordinator.any(not state) else state


@cache
def _warn_of_state(callback: str, names: str, *, is_over: bool) -> None:
    log.warning(
        "the callback %s %s: no checkpoint has its %s. Give it `get_state()` and "
        "`set_state(state)`; checkpoints then keep its state",
        callback,
        "is not called again, because its fit had ended"
        if is_over
        else "resumes without its earlier state",
        names,
    )


@cache
def _warn_of_draws(names: str) -> None:
    log.warning(
        "the steps draw from `tf.random` (%s). TensorFlow does not reveal the state of these "
        "generators: they begin anew here, so the result is not that of an undisturbed run. "
        "Use `keras.random`, or a `tf.random.Generator` that is an attribute of the model",
        names,
    )


@cache
def _warn_of_attributes(names: str) -> None:
    log.warning(
        "the model has the first values of %s again: they had changed before the checkpoint, which "
        "holds variables only. Make each a `tf.Variable`, or set it in a callback's "
        "`on_train_begin`",
        names,
    )


def _numbers(logs: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in logs.items()}


def _random_state() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    seed, seeds = global_seed(), tensorflow_names.operation_seeds()
    return {
        "python": [version, list(numbers), gauss],
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  Keras's users draw from it
        # Of eager operations without a seed of their own; those in functions hide their state.
        "tensorflow": seeds and seeds.getstate(),
        # Not among the checkpoint's variables, because any step or callback may create it.
        "keras": State(seed).take()[0] if seed else None,
    }


def _put_global_seed_back(value: np.ndarray | None) -> None:
    """Restore the generator's state; if it had none, the first draw creates it."""
    if value is None:
        keras_names.set_global_attribute(keras_names.GLOBAL_SEED_GENERATOR, None)
    else:
        State([keras_names.global_seed_generator().state]).put_back([value])


def _put_random_back(state: dict[str, Any]) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    drawn, seeds = state.get("tensorflow"), tensorflow_names.operation_seeds()
    if drawn and seeds:
        version, numbers, gauss = drawn
        seeds.setstate((version, tuple(numbers), gauss))


def _trainable_layers(model: keras.Model) -> dict[int, bool]:
    return {id(layer): layer.trainable for layer in keras_names.layers_within(model)}

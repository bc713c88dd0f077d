"""One `fit`, with checkpoints, resume, stops and time limits: a script's, or the trainer's own."""

import inspect
import logging
import secrets
import signal
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras

from cluster_trainer.callbacks.keeper import Keeper, Place, place_of
from cluster_trainer.callbacks.records import ClusterTrainerRecords
from cluster_trainer.checkpoints.checkpoint import (
    UNKNOWN_RUN,
    Checkpoint,
    Stage,
    uncounted,
    variable_names,
)
from cluster_trainer.checkpoints.resume import LAYERS, Found, find_newest, keep, refuse_other_run
from cluster_trainer.checkpoints.saver import Saver, touch
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives import group
from cluster_trainer.collectives.neighbours import VARIABLE, who_waits
from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine.data.sources.choice import may_begin_again
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.replicas.metric_rows import MetricRows
from cluster_trainer.engine.running import Running, flat, prepares
from cluster_trainer.engine.steps import waits_of
from cluster_trainer.fits.kept import agreement
from cluster_trainer.fits.kept.arguments import arrange, own_callbacks, telling_callbacks
from cluster_trainer.fits.kept.compiled import TRAINING
from cluster_trainer.fits.kept.ended import EndedFit, ended_fits
from cluster_trainer.fits.kept.plan import Plan
from cluster_trainer.fits.kept.shared_files import ChiefsFiles, share_files
from cluster_trainer.fits.pace_watch import PaceWatch
from cluster_trainer.private import keras_names
from cluster_trainer.problems import (
    ConfigurationError,
    NotRehearsedError,
    PeerLostError,
    PeerStoppedError,
    Problem,
    RehearsedError,
    StopRequestedError,
    WorkerIsBackError,
    listed,
)
from cluster_trainer.process.stall import StallLimit
from cluster_trainer.results.screen import OWN
from cluster_trainer.results.status_file import status_file
from cluster_trainer.settings.config import TrainerConfig, shown_name, variable_of

CHECKPOINTS = "checkpoints"
KEEPS = "fit (whether it is kept)"
RUN = "fit (the number of the run)"
RUN_BITS = 62  # of what workers can tell each other
log = logging.getLogger("trainer")


class KeptFit:
    """One `fit` and its checkpoints.

    Args:
        plan: how it is kept.
        model: what is trained; made in the scope of its strategy.

    Raises:
        ConfigurationError: its gradients cannot be sent as the settings say.
    """

    def __init__(self, plan: Plan, model: keras.Model) -> None:
        self._plan, self._job, self._model = plan, plan.job, model
        agreement.refuse_wire(plan.job.config, model.distribute_strategy)
        self._workers = workers_of(model.distribute_strategy)
        self._store = Store(plan.folder)
        self._saver = Saver(self._store, self._note_saved)
        self._furthest = -1  # of all checkpoints, by their numbers
        self._found: Found | None = None
        self._keeper: Keeper | None = None
        self._records: list[ClusterTrainerRecords] = []  # one at most
        self._callbacks: Sequence[Any] = []
        self._files: ChiefsFiles | None = None
        self._stops = self._takes_in = self._has_looked = False
        self._waiting: tuple[str, ...] = ()
        self._keeps = self._begins_again = self._tests_begin_again = True
        self._every = 0
        looks = not _has_gpus(model, self._workers.count)
        most = Replicas.of(model.distribute_strategy).most
        waited = partial(waits_of, model)
        self.pace = PaceWatch(self._job.task, self._workers, looks=looks, most=most, waited=waited)
        self._saved_at, self._first_epoch = 0.0, 0
        self._outdated: list[EndedFit] = []
        self.validates, self.seed, self.run_number = False, 0, UNKNOWN_RUN
        self.described, self.describes_data = plan.described, plan.describes_data
        self.cuts = (1,) if plan.rehearses else plan.cuts  # one step, however long a call is

    @property
    def place(self) -> Place:
        """Where the fit is."""
        if self._keeper:
            return self._keeper.place
        return place_of(self._found.checkpoint) if self._found else Place()

    @property
    def step(self) -> int:
        """The step that it is at."""
        return self.place.step

    @property
    def begins_again(self) -> bool:
        """Whether this process can go on from a checkpoint of a step that it had passed."""
        iterator = self._keeper.iterator if self._keeper else None
        is_possible = iterator.source.begins_again if iterator else self._begins_again
        are_tests = self._tests_begin_again and (
            self._tests is None or self._tests.source.begins_again
        )
        return bool(self._keeps and is_possible and are_tests)

    @property
    def has_trained(self) -> bool:
        """Whether the model may be another than it was at the beginning of the fit."""
        return bool(self._keeper and self._keeper.has_begun)

    @property
    def beginning(self) -> str:
        """Where the fit begins, in words."""
        if self._found is None:
            return "at step 0, without a checkpoint on any worker"
        return f"from step {place_of(self._found.checkpoint).step} held by {self._found.holder}"

    def checkpoint_seconds(self) -> dict[str, tuple[int, float]]:
        """Return of the newest checkpoint its step, and how long it held training up and took."""
        found = {}
        if self._keeper and self._keeper.held_up:
            found["seconds_held_up"] = self._keeper.held_up
        if self._saver.newest is not None:
            found["seconds_to_write"] = self._saver.newest, self._saver.newest_seconds
        return found

    def seconds_held_up(self) -> float:
        """Return for how many seconds the checkpoints of this start have held training up."""
        return self._keeper.seconds_held_up if self._keeper else 0.0

    @property
    def examples_at(self) -> Callable[[int], int] | None:
        """From a step to the training examples seen until then; None: nobody knows, or not yet."""
        iterator = self._keeper.iterator if self._keeper else None
        return iterator.source.examples_at if iterator else None

    @property
    def data_described(self) -> dict[str, str]:
        """How the training data are cut, name -> value; empty where nobody knows yet."""
        iterator = self._keeper.iterator if self._keeper else None
        return iterator.described if iterator else {}

    def find(self) -> None:
        """Find the newest checkpoint of any worker, which all have then; all workers call it.

        Raises:
            ConfigurationError: it has to be there and is not.
            PeerLostError: there is none, and only a new process could begin at step 0.
        """
        self._has_looked = True
        self._store.tidy()
        self._every = self._agreed_steps()
        self._keeps = bool(self._every)
        if not self._keeps:
            if self._plan.has_trained:
                raise PeerLostError("a peer was lost, and a worker keeps no checkpoints")
            return
        self._found = find_newest(self._store, self._workers, self._job.task)
        if self._found:
            self._furthest = self._found.checkpoint.number
            keep(self._found, self._saver)
            self._say(self._found)
        else:
            if self._plan.must_resume:
                _refuse_beginning(self._job.config)
            if self._plan.has_trained:
                raise PeerLostError("a peer was lost, and no worker could keep a checkpoint")
            log.info("%sno checkpoint on any worker: starting at step 0", self._prefix)

    def close(self) -> None:
        """Wait until what is to be written is, and write nothing more."""
        self._saver.close()

    def _agreed_steps(self) -> int:
        """Return the steps between two checkpoints; 0 without one of the workers: there are none.

        Raises:
            ConfigurationError: this worker is new, and does otherwise than the others.
        """
        steps = self._job.config.checkpoint_steps
        wanted = self._workers.gather(steps, KEEPS)
        keep = [bool(one) for one in wanted]
        if len(set(keep)) > 1 and self._workers.leave_out(keep, variable_of("checkpoint_steps")):
            accepted = "0 on all workers or on none; without a folder that can be written it is 0"
            raise ConfigurationError(
                [Problem(shown_name("checkpoint_steps"), str(steps), accepted)]
            )
        return min(wanted)

    def run(self, run: Callable[..., Any], given: inspect.BoundArguments, call: Running) -> Any:
        """Run it; see `_run`. What reads weights in it is no use of an earlier fit's."""
        with ended_fits.fit(self._workers.count):
            return self._run(run, given, call)

    def _run(self, run: Callable[..., Any], given: inspect.BoundArguments, call: Running) -> Any:
        """Run it from the newest checkpoint of any worker, or from its beginning.

        Args:
            run: runs it, with its arguments and what is to be announced.
            given: its arguments.
            call: is announced.

        Raises:
            StopRequestedError, PeerStoppedError: it was stopped, after a checkpoint.
            WorkerIsBackError: it is to go on with another worker, from a checkpoint.
            RehearsedError: its first step is done; NotRehearsedError: it cannot be done twice.
            ConfigurationError: the checkpoint is of another fit, or the workers differ.
        """
        if not self._has_looked and not self._plan.rehearses:
            self.find()
        self._note_data(given)
        if self._plan.rehearses:
            self._refuse_rehearsal(given.arguments.get("callbacks"))
            given.arguments["callbacks"] = None
        steps = self._every
        found = self._found.checkpoint if self._found else None
        callbacks = own_callbacks(given, self._plan, keeps=bool(steps), goes_on=found is not None)
        self.seed = call.seed = found.progress["seed"] if found else call.seed
        if steps:
            self.run_number = self._number_of_run(found)
        self.validates = given.arguments.get("validation_data") is not None or bool(
            given.arguments.get("validation_split")
        )
        first = int(given.arguments.get("initial_epoch", 0))
        self._records, self._callbacks = self._made_records(), callbacks
        self._keeper = Keeper(
            self._saver, steps or None, found, self, [*callbacks, *self._records], first
        )
        if self._found:  # as large as all variables: the keeper's alone, until it has put them back
            light = replace(self._found.checkpoint, arrays=[])
            self._found = replace(self._found, content=b"", checkpoint=light)
        own = [
            *self._records,
            *telling_callbacks(self._plan, self._keeper, self.pace, self._saved),
        ]
        self._files = self._files_to_share(given.arguments.get("callbacks"))
        arrange(given, callbacks, own, self._plan, self._keeper, self._files)
        self._first_epoch = self.place.epoch
        call.keeper, call.agree, call.meet = self._keeper, self._agree, self.meet
        stall = StallLimit(self._plan.deadline, self._job.config.stall_timeout_seconds)
        call.limit, call.traces = stall.call, stall.traces
        self._plan.stop.is_watched = True
        try:
            history = run(given, call)
            if self._plan.rehearses:
                raise NotRehearsedError("this fit has no step to do")
            self._saver.wait()
            self._store.keep_newest()
            self.share_files()
            self._note_ended()
        except (StopRequestedError, PeerStoppedError):
            status_file(self._job.status_file).tell(
                "saving", "the last checkpoint", step=self.place.step
            )
            self._saver.wait()
            if self._saver.newest is not None:
                log.info("saved the checkpoint of step %d", self._saver.newest, extra=OWN)
            raise
        finally:
            for records in self._records:
                records.close()
            self._saver.close()
            self.pace.end()
            self._plan.stop.is_watched = False
            self._let_go()
        return history

    def _note_data(self, given: inspect.BoundArguments) -> None:
        """Note whether the fit's data can be read again."""
        self._begins_again = may_begin_again(given.arguments.get("x"))
        tests = keras.utils.unpack_x_y_sample_weight(given.arguments.get("validation_data"))
        self._tests_begin_again = may_begin_again(tests[0])

    def _files_to_share(self, callbacks: Any) -> ChiefsFiles | None:
        """Return the files that callbacks write on the chief alone, if there are other workers."""
        if self._workers.count == 1 or self._plan.rehearses:
            return None
        goes_on = self._found is not None
        return ChiefsFiles(self._workers, flat(callbacks), self._job.folder, goes_on=goes_on)

    def _made_records(self) -> list[ClusterTrainerRecords]:
        """Return what records the fit, if anything does: nothing without a folder of its own."""
        make = self._plan.records
        if make is None or self._plan.rehearses or not self._every:
            return []
        return [ClusterTrainerRecords(lambda: make(self))]

    def _number_of_run(self, found: Checkpoint | None) -> int:
        """Return the number that its checkpoints have; where there is none yet, the chief's draw.

        Not from the generators that a script seeds: its next run is another one.
        """
        known = found.run if found else UNKNOWN_RUN
        return known or self._workers.gather(1 + secrets.randbits(RUN_BITS), RUN)[0]

    def _refuse_rehearsal(self, callbacks: Any) -> None:
        """Refuse to do a first step that is not the one that comes, or that takes it away.

        Raises:
            NotRehearsedError: with the reason.
        """
        if not self.begins_again:
            raise NotRehearsedError("a process can go through such data only once")
        if preparing := prepares(callbacks):
            raise NotRehearsedError(f"{listed(preparing)} may prepare the model")

    def _let_go(self) -> None:
        """Hold no data and no checkpoint any longer; another try begins with its own."""
        if self._files:
            self._files.let_go()
        if self._keeper and self._keeper.iterator:
            self._begins_again = self._keeper.iterator.source.begins_again
        if self._keeper:
            self._keeper.let_go()
        if self._tests is not None:  # of a fit that has failed
            self._tests_begin_again &= self._tests.source.begins_again
            self._tests.abandon()
            delattr(self._model, keras_names.ITERATOR_OF_VALIDATION)

    @property
    def _tests(self) -> Any:
        """The batches of the fit's validations; None where there was none yet."""
        return getattr(self._model, keras_names.ITERATOR_OF_VALIDATION, None)

    def check(self, described: Mapping[str, str], names: Sequence[str]) -> None:
        """Refuse workers that differ, and a checkpoint of another fit; see callbacks.keeper.Plan.

        Raises:
            ConfigurationError: with everything that differs.
        """
        self._compare(described, names)
        if self._found:
            has_ended = place_of(self._found.checkpoint).stage == Stage.ALL
            (self._plan.had_ended if has_ended else self._plan.goes_on)()
        if not self._plan.rehearses:
            self._plan.begins()

    def _compare(self, described: Mapping[str, str], names: Sequence[str]) -> None:
        names = uncounted(names)
        forms = [f"{one.dtype} {list(one.shape)}" for one in self._model.variables]
        variables = {"the variables": f"{len(names)}, {agreement.digest_of([*names, *forms])}"}
        settings = {
            variable_of("wire"): group.gradients_wire() or "float32",
            variable_of("profile_steps"): ", ".join(map(str, self._plan.cuts)),
        }
        if self._keeper and self._every and self._plan.name:
            trained = self._keeper.variables()
            self._outdated = ended_fits.outdated_by(self._plan.name, trained)
            if self._found is None:
                ended_fits.refuse_gone(trained)
        facts = {**described, **variables, **settings}
        agreement.refuse_differing(self._workers, self._job.task, facts)
        if self._found:
            saved = self._found.checkpoint
            kept = uncounted(variable_names(saved))
            if "keras" not in saved.progress["random"] and kept[:-1] == names:
                kept = names  # see variable_names
            found = replace(self._found, checkpoint=replace(saved, names=kept))
            left_out = self._not_compared(saved)
            settings = {k: v for k, v in saved.settings.items() if k not in left_out}
            found = replace(found, checkpoint=replace(found.checkpoint, settings=settings))
            known = {k: v for k, v in described.items() if k not in left_out}
            refuse_other_run(found, known, names)

    def _not_compared(self, saved: Checkpoint) -> set[str]:
        """Return what is not compared with a checkpoint: what an earlier version did not note."""
        unknown = set() if {*TRAINING} & saved.settings.keys() else {*TRAINING}
        return unknown if self._plan.compares_layers else {*unknown, LAYERS}

    def note_values(self, variables: Sequence[Any], gone: Container[int]) -> None:
        """Note that variables have the checkpoint's values, but for those at some places."""
        places = range(len(variables))
        ended_fits.note_restored(variables[index] for index in places if index not in gone)
        ended_fits.note_gone(self._plan.name, [variables[one] for one in places if one in gone])

    def _note_ended(self) -> None:
        """Note the end of a fit of a script, which may train the same model on."""
        if self._plan.name and self._every and self._keeper and self._keeper.has_weights:
            ended_fits.note(self._plan.name, self._store, self._keeper.variables())

    def share_files(self) -> list[Any]:
        """Give all workers the files of ModelCheckpoint; return those whose file no worker has."""
        return share_files(self._callbacks, self._workers, goes_on=self._found is not None)

    def any(self, wish: bool, where: str = "the end of an epoch") -> bool:  # noqa: FBT001
        """Tell whether any worker wishes something there."""
        return max(self._workers.gather(int(wish), f"fit ({where})")) > 0

    def stops(self) -> bool:
        """Tell whether the workers have agreed to stop here, for good or to go on with another."""
        return self._stops or self._takes_in

    def meet(self) -> None:
        """End the fit if the workers have agreed to.

        Raises:
            StopRequestedError: this worker was asked to stop.
            PeerStoppedError: another worker was.
            WorkerIsBackError: another worker is to be taken in.
            RehearsedError: this was all that was to be done.
        """
        if self._plan.rehearses and not self._stops:
            self._rehearse_saving()
            raise RehearsedError
        if self._takes_in and not self._stops:
            raise WorkerIsBackError(listed(self._waiting) if self._waiting else "a worker")
        if not self._stops:
            return
        stop = self._plan.stop
        raises = self._plan.interrupts and not stop.has_scripts_handler
        is_alone = self._job.task.num_workers == 1
        if raises and is_alone and stop.signal_number == signal.SIGINT:
            stop.signal_number = 0
            raise KeyboardInterrupt  # as everywhere in Python: the script may have plans
        if stop.signal_number:
            raise StopRequestedError(stop.signal_number)
        raise PeerStoppedError

    def _rehearse_saving(self) -> None:
        """Compile what an epoch's end and a checkpoint take from all workers; see Keeper."""
        statistics.average(self._model, self._model.distribute_strategy)
        if self._job.config.checkpoint_steps:
            MetricRows(self._model).take()

    @property
    def _prefix(self) -> str:
        return self._plan.prefix

    def _say(self, found: Found) -> None:
        place = place_of(found.checkpoint)
        if place.stage == Stage.ALL:
            log.info("%shad ended after %d steps", self._prefix, place.step)
        log.info("%sresuming from step %d held by %s", self._prefix, place.step, found.holder)

    def _saved(self) -> dict[str, Any]:
        """Return which checkpoint this worker has written last, and when, for `status`."""
        if self._saver.newest is None:
            return {}
        return {"checkpoint_step": self._saver.newest, "checkpoint_at": self._saved_at}

    def _agree(self, seconds: float) -> float:
        """Meet the other workers; return the slowest one's seconds, and note if one has to stop."""
        number = float(self._plan.stop.signal_number)
        mine = [seconds, number, float(self._is_to_take_in()), *self.pace.mine()]
        slowest, number, takes_in, *told = self._workers.largest(mine, "fit (after a call)")
        self._stops, self._takes_in = bool(number), bool(takes_in)
        if self.place.epoch > self._first_epoch:  # with its end, and its validation
            self._workers.trust_newcomers()
        self.pace.take(told)
        return slowest

    def _is_to_take_in(self) -> bool:
        """Tell, on worker 0, whether somebody who was missing waits to be taken in, and can be."""
        job = self._job
        are_missing = 1 < self._workers.count < job.task.num_workers
        if not (are_missing and job.group_socket and self._workers.rank == 0):
            return False
        news = who_waits({VARIABLE: job.group_socket})
        waiting = self._waiting if news is None else news
        can_be = self._plan.may_take_in and self.begins_again
        if waiting and waiting != self._waiting and not can_be:
            log.warning(
                "%s is back and has to wait: only a fit that could begin again in this process is "
                "interrupted (docs/explanation/survival.md)",
                listed(waiting),
            )
        self._waiting = waiting
        return bool(waiting) and can_be

    def _note_saved(self, number: int) -> None:
        ended_fits.remove_weights(self._outdated, self._plan.name)
        self._outdated = []
        self._saved_at = time.monotonic()
        # One that had ended is kept again: a script that fails behind it gets no further.
        if self._job.progress_file and number > self._furthest:
            touch(self._job.progress_file)
        self._furthest = max(self._furthest, number)


def close(fits: Sequence[KeptFit]) -> None:
    """Let none of some fits write anything any more, which another one will do, or nobody."""
    for one in fits:
        one.close()


def _has_gpus(model: keras.Model, workers: int) -> bool:
    """Tell whether one of several workers computes on GPUs."""
    # What stands for a strategy where there is none has no devices.
    strategy = model.distribute_strategy
    if workers == 1 or ring_of(strategy):  # whose workers are CPUs
        return False
    devices = strategy.extended.worker_devices
    return any("GPU" in device for device in devices)


def _refuse_beginning(config: TrainerConfig) -> None:
    """Refuse to begin at step 0 where that is not wanted.

    Raises:
        ConfigurationError: always.
    """
    accepted = "auto or never, since no worker holds a whole checkpoint"
    advice = f"Is {config.run_dir} the run's own directory, mounted on every worker?"
    raise ConfigurationError([Problem(shown_name("resume"), "must", accepted, advice)])

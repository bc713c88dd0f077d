"""One `fit`, with checkpoints, resume, stops and time limits."""

import inspect
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import keras

from cluster_trainer.callbacks.recording.records import ClusterTrainerRecords
from cluster_trainer.checkpoints.checkpoint import UNKNOWN_RUN, Place
from cluster_trainer.checkpoints.resume import keep
from cluster_trainer.checkpoints.saver import Saver
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives.process_ring import (
    are_rounds_open,
    gradients_wire,
    steps_of_round,
)
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.engine import running
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.running import Running, Watched, flat, prepares
from cluster_trainer.engine.steps import waits_of
from cluster_trainer.engine.waits import INPUT, SUMS
from cluster_trainer.fits.input_watch import InputWatch
from cluster_trainer.fits.kept.arguments import (
    arrange,
    length_described,
    own_callbacks,
    telling_callbacks,
)
from cluster_trainer.fits.kept.checkpoint_callback import CheckpointCallback
from cluster_trainer.fits.kept.consistency_check import refuse_rounds, refuse_wire
from cluster_trainer.fits.kept.coordinator import Coordinator, Saved
from cluster_trainer.fits.kept.finding import Start, find_start
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.kept.rereading import Rereading
from cluster_trainer.fits.kept.round_choice import RoundChoice, adopt, refuse_without_return
from cluster_trainer.fits.kept.round_traffic import ratio_of
from cluster_trainer.fits.kept.step_vote import StepVote
from cluster_trainer.fits.network_watch import NetworkWatch
from cluster_trainer.fits.shared.files import ChiefsFiles
from cluster_trainer.fits.straggler_watch import StragglerWatch
from cluster_trainer.problems import (
    NotRehearsedError,
    PeerStoppedError,
    StopRequestedError,
    listed,
)
from cluster_trainer.process.stall import StallLimit
from cluster_trainer.results.on_screen.screen import OWN
from cluster_trainer.results.status_file import status_file

CHECKPOINTS = "checkpoints"
RUN = "fit (the number of the run)"
RUN_BITS = 62  # small enough for a number that workers exchange
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Begun:
    """The parts of a fit once Keras runs it.

    Attributes:
        checkpoint_callback: saves the fit's checkpoints, and knows its place.
        coordinator: connects the checkpoint callback with the rest of the fit.
        records: the callback that records the fit; empty if it is not recorded.
    """

    checkpoint_callback: CheckpointCallback
    coordinator: Coordinator
    records: Sequence[ClusterTrainerRecords]


class KeptFit:
    """One `fit` and its checkpoints: it finds where it begins, runs, and releases its data.

    Args:
        options: the options of the saved fit.
        model: the model to train; it was created in the scope of its strategy.
    """

    def __init__(self, options: FitOptions, model: keras.Model) -> None:
        self._options, self._model = options, model
        self._store, self._saved = Store(options.folder), Saved(options)
        self._saver = Saver(self._store, self._saved.note)
        self._data = Rereading(model)
        self._start: Start | None = None
        self._begun: Begun | None = None

    @cached_property
    def _workers(self) -> Workers:
        return workers_of(self._model.distribute_strategy)

    @cached_property
    def stragglers(self) -> StragglerWatch:
        """Finds the workers that hold the others up."""
        looks = not _has_gpus(self._model, self._workers.count)
        ring = ring_of(self._model.distribute_strategy)
        most = ring.most if ring else None
        waited, task = partial(waits_of, self._model), self._options.job.task
        return StragglerWatch(task, self._workers, looks=looks, most=most, waited=waited)

    @cached_property
    def network(self) -> NetworkWatch:
        """Compares how long the workers wait for sums."""
        return NetworkWatch(
            self._options.network,
            ring_of(self._model.distribute_strategy),
            lambda: waits_of(self._model).get(SUMS, 0.0),
            is_chief=self._workers.rank == 0,
            is_rounded=gradients_wire() == "bfloat16",
            in_rounds=steps_of_round() > 1,
            tell=self._rounds.note,
        )

    @cached_property
    def _rounds(self) -> RoundChoice:
        is_alone = self._workers.count == 1
        is_measuring = are_rounds_open() and not is_alone and not self._options.rehearses
        ratio = partial(ratio_of, self._model)
        return RoundChoice(self._workers, ratio, is_measuring=is_measuring)

    @cached_property
    def input(self) -> InputWatch:
        """Watches how long the steps wait for their batches."""
        return InputWatch(
            lambda: waits_of(self._model).get(INPUT),
            lambda: self._iterator.source.advice if self._iterator else "",
            is_chief=self._workers.rank == 0 and self._workers.count > 1,
        )

    @property
    def place(self) -> Place:
        """The fit's place."""
        if self._begun:
            return self._begun.checkpoint_callback.place
        return self._start.place if self._start else Place()

    @property
    def step(self) -> int:
        """The fit's current step."""
        return self.place.step

    @property
    def _iterator(self) -> Any:
        """The iterator of the training batches; None before the fit has it, and after its end."""
        return self._begun.checkpoint_callback.iterator if self._begun else None

    @property
    def begins_again(self) -> bool:
        """Whether this process can resume from a checkpoint of an earlier step."""
        keeps = self._start is None or self._options.rehearses or self._start.every > 0
        return keeps and self._data.is_possible(self._iterator)

    @property
    def has_trained(self) -> bool:
        """Whether the model may differ from its state at the beginning of the fit."""
        return bool(self._begun and self._begun.checkpoint_callback.has_begun)

    @property
    def beginning(self) -> str:
        """A text about the step at which the fit begins."""
        words = (self._start or Start()).in_words
        if self._options.job.config.sync_every == "auto" and (every := steps_of_round()) > 1:
            words += f"; auto has chosen averages every {every} steps"
        return words

    @property
    def examples_at(self) -> Callable[[int], int] | None:
        """A function from a step to the number of examples used until then; None: unknown."""
        return self._iterator.source.examples_at if self._iterator else None

    @property
    def data_described(self) -> dict[str, str]:
        """Facts about the training batches, name -> value; empty if they are not known yet."""
        return self._iterator.described if self._iterator else {}

    def checkpoint_seconds(self) -> dict[str, tuple[int, float]]:
        """Return how long the newest checkpoint delayed training, and how long its writing took.

        Each is a pair of the checkpoint's step and seconds, by the name for TensorBoard.
        """
        found = {}
        if self._begun and self._begun.checkpoint_callback.held_up:
            found["seconds_held_up"] = self._begun.checkpoint_callback.held_up
        if self._saver.newest is not None:
            found["seconds_to_write"] = self._saver.newest, self._saver.newest_seconds
        return found

    def seconds_held_up(self) -> float:
        """Return for how many seconds the checkpoints of this start have delayed training."""
        return self._begun.checkpoint_callback.seconds_held_up if self._begun else 0.0

    def find(self) -> Start:
        """Find the newest checkpoint of any worker, and give it to all; all workers call this.

        Raises:
            ConfigurationError: as for `find_start`; or the settings need a ring, and there is none.
            PeerLostError: there is no checkpoint, and only a new process could begin at step 0.
        """
        self._refuse_without_ring()
        start = self._start = find_start(self._options, self._store, self._workers)
        if start.found:
            self._saved.furthest = start.found.checkpoint.number
            keep(start.found, self._saver)
        ring = ring_of(self._model.distribute_strategy)
        if self._options.job.config.sync_every == "auto" and ring:
            adopt(self._workers, start)
        self._options.found(self)
        return start

    def run(self, run: Callable[..., Any], given: inspect.BoundArguments, call: Running) -> Any:
        """Run the fit from the newest checkpoint of any worker, or from its beginning.

        Args:
            run: runs it with its arguments and its announcement.
            given: its arguments.
            call: its announcement; see Running.

        Raises:
            StopRequestedError, PeerStoppedError: the fit was stopped, after a checkpoint.
            WorkerIsBackError: another worker is to rejoin, from a checkpoint.
            RehearsedError: the one step of a rehearsal is done.
            NotRehearsedError: the first step cannot be rehearsed.
            ConfigurationError: the checkpoint belongs to another fit, or the workers differ.
        """
        # The fit's own reads of weights do not count as the script's use of an earlier fit's.
        with self._options.ended.fit(self._workers.count):
            watched = self._begin(given, call)
            with self._until_its_end():
                history = run(given, watched)
                self._end()
        return history

    def close(self) -> None:
        """Wait until all checkpoints are written, and accept no more."""
        self._saver.close()

    def _begin(self, given: inspect.BoundArguments, call: Running) -> Running:
        """Adapt the fit's arguments to its beginning; return its announcement."""
        options, start = self._options, self._start
        self._data.note(given)
        if options.rehearses:
            self._refuse_without_ring()
            self._refuse_rehearsal(given.arguments.get("callbacks"))
            given.arguments["callbacks"] = None
            start = Start()
        start = start or self.find()
        if self._rounds.is_measuring:
            may_read = self._data.is_possible(None)
            refuse_without_return(start, begins_again=may_read)
        # From here on the checkpoint callback alone holds the values, until they are restored.
        self._start = start.lighter()
        goes_on = start.found is not None
        callbacks = own_callbacks(given, options, keeps=bool(start.every), goes_on=goes_on)
        order = call.order
        if start.found:
            order = replace(order, seed=start.found.checkpoint.progress["seed"])
        begun = self._begun = self._with_checkpoint_callback(start, given, order.seed, callbacks)
        announced = replace(call, order=order, watched=self._watched(begun))
        own = [
            *begun.records,
            *telling_callbacks(options, begun.checkpoint_callback, self.stragglers, self._told),
        ]
        with running.announced(announced):  # `arrange` may begin data, within the fit's time limits
            files = begun.coordinator.files if self._workers.count > 1 else None
            arrange(given, callbacks, own, options, begun.checkpoint_callback, files)
        begun.coordinator.vote.begin()
        return announced

    def _refuse_without_ring(self) -> None:
        """Refuse settings that need a ring if there is none."""
        config, strategy = self._options.job.config, self._model.distribute_strategy
        refuse_wire(config, strategy)
        refuse_rounds(config, strategy)

    def _watched(self, begun: Begun) -> Watched:
        """Return the functions with which the engine's calls are watched; see Watched."""
        options, coordinator = self._options, begun.coordinator
        stall = StallLimit(options.deadline, options.job.config.stall_timeout_seconds)

        def agree(seconds: float) -> float:
            self.input.note(seconds)
            return coordinator.vote.agree(seconds)

        return Watched(
            begun.checkpoint_callback,
            agree,
            coordinator.meet,
            stall.call,
            stall.traces,
            FirstBatchMode(options.job.config.first_batch, available_bytes),
        )

    def _with_checkpoint_callback(
        self, start: Start, given: inspect.BoundArguments, seed: int, callbacks: Sequence[Any]
    ) -> Begun:
        options, workers, arguments = self._options, self._workers, given.arguments
        found = start.found.checkpoint if start.found else None
        users, folder = flat(arguments.get("callbacks")), options.job.folder
        has_tests = arguments.get("validation_data") is not None
        coordinator = Coordinator(
            options=options,
            model=self._model,
            workers=workers,
            start=start.lighter(),
            vote=StepVote(
                *(options, workers, self.stragglers, self.network),
                lambda: self.place,
                lambda: self.begins_again,
            ),
            saved=self._saved,
            files=ChiefsFiles(workers, users, folder, goes_on=found is not None),
            variables=lambda: checkpoint_callback.variables(),  # noqa: PLW0108  it is made below
            validates=has_tests or bool(arguments.get("validation_split")),
            seed=seed,
            run_number=self._number_of_run(start),
            rounds=self._rounds,
            asked=length_described(self._model, arguments, goes_on=found is not None),
        )
        records = self._made_records(start)
        kept, first = [*callbacks, *records], int(arguments.get("initial_epoch", 0))
        checkpoint_callback = CheckpointCallback(
            self._saver, start.every or None, found, coordinator, kept, first
        )
        return Begun(checkpoint_callback, coordinator, records)

    @contextmanager
    def _until_its_end(self) -> Iterator[None]:
        self._options.stop.is_watched = True
        try:
            yield
        except (StopRequestedError, PeerStoppedError):
            self._save_the_last()
            raise
        finally:
            self._let_go()

    def _end(self) -> None:
        assert self._begun  # noqa: S101  it has run
        if self._options.rehearses:
            raise NotRehearsedError("this fit has no step to do")
        self._saver.wait()
        self._store.keep_newest()
        coordinator, options = self._begun.coordinator, self._options
        coordinator.files.share_best()
        has_weights = self._begun.checkpoint_callback.has_weights
        if options.name and coordinator.start.every and has_weights:
            # A script may continue to train the same model.
            options.ended.note(options.name, self._store, coordinator.variables())

    def _save_the_last(self) -> None:
        status = status_file(self._options.job.status_file)
        status.tell("saving", "the last checkpoint", step=self.place.step)
        self._saver.wait()
        if self._saver.newest is not None:
            log.info("saved the checkpoint of step %d", self._saver.newest, extra=OWN)

    def _let_go(self) -> None:
        """Release all data and checkpoints; another attempt has its own."""
        assert self._begun  # noqa: S101  it has run
        for records in self._begun.records:
            records.close()
        self._saver.close()
        self.stragglers.end()
        self._options.stop.is_watched = False
        self._begun.coordinator.files.let_go()
        self._data.let_go(self._iterator)
        self._begun.checkpoint_callback.let_go()

    def _told(self) -> dict[str, Any]:
        rounds = {} if self._rounds.is_measuring else {"sync_every": steps_of_round()}
        return {"network": self.network.reason, **rounds, **self._saved.told(self._saver.newest)}

    def _made_records(self, start: Start) -> list[ClusterTrainerRecords]:
        make, options = self._options.records, self._options
        is_recorded = start.every or options.must_record
        if make is None or options.rehearses or not is_recorded:
            return []
        return [ClusterTrainerRecords(lambda: make(self), is_strict=options.must_record)]

    def _number_of_run(self, start: Start) -> int:
        """Return the run number of the fit's checkpoints; the chief draws it for a new run.

        It does not come from the generators that a script seeds, because each run needs another
        number.
        """
        if not start.every:
            return UNKNOWN_RUN
        known = start.found.checkpoint.run if start.found else UNKNOWN_RUN
        return known or self._workers.gather(1 + secrets.randbits(RUN_BITS), RUN)[0]

    def _refuse_rehearsal(self, callbacks: Any) -> None:
        """Refuse to rehearse a step that would use up data, or that a callback would prepare.

        Raises:
            NotRehearsedError: with the reason.
        """
        if not self.begins_again:
            raise NotRehearsedError("a process can go through such data only once")
        if preparing := prepares(callbacks):
            raise NotRehearsedError(f"{listed(preparing)} may prepare the model")


def _has_gpus(model: keras.Model, workers: int) -> bool:
    # The stand-in for a missing strategy has no devices.
    strategy = model.distribute_strategy
    if workers == 1 or ring_of(strategy):  # its workers are CPUs
        return False
    devices = strategy.extended.worker_devices
    return any("GPU" in device for device in devices)

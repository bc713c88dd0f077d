"""One `fit` on JAX, in the order in which it happens.

1. What is not supported is refused: `refusals.py`.
2. The process takes its worker's folder, and the workers agree which fit this is: `fits/identity`.
3. They compare their data, and find the newest checkpoint.
4. Keras's own `fit` runs, with `Steps` as its train function and `Keeping` as its last callback.
5. It ends: with a result, with 143 after a stop, with 75 if a worker is lost, or with 78.
"""

import atexit
import inspect
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from typing import IO, Any

import jax
import keras
import numpy as np

from cluster_trainer.callbacks.chief import for_worker
from cluster_trainer.callbacks.progress_report import ProgressReport
from cluster_trainer.callbacks.recording.epoch_metrics import EpochMetrics
from cluster_trainer.callbacks.recording.records import ClusterTrainerRecords
from cluster_trainer.checkpoints.checkpoint import COUNTED, Stage
from cluster_trainer.checkpoints.resume import Found, find_newest, keep
from cluster_trainer.checkpoints.saver import Saver, touch
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.fits.identity import end_mark
from cluster_trainer.fits.identity.fits import Chosen, Fits
from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.fits.identity.owner import Owner, claim, script_name, this_process
from cluster_trainer.fits.identity.weights import sampled, summary_of
from cluster_trainer.fits.script.earlier_runs import begin_anew
from cluster_trainer.on_jax import refusals
from cluster_trainer.on_jax.batches import GlobalBatches
from cluster_trainer.on_jax.cluster import JaxWorkers, present
from cluster_trainer.on_jax.keeping import Keeping, LogsOfChief, fit_folder
from cluster_trainer.on_jax.step import Steps
from cluster_trainer.private import any_backend, keras_jax_names
from cluster_trainer.problems import (
    ConfigurationError,
    PeerLostError,
    Problem,
    StopRequestedError,
)
from cluster_trainer.process.exit_code import end_by, leave_process, status_of
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.metrics_file import MetricsFile
from cluster_trainer.results.on_screen.report import start_log
from cluster_trainer.results.status_file import status_file
from cluster_trainer.script_text import digest_of, texts
from cluster_trainer.settings.job import Job, read_job

OF_A_LOST_PEER = re.compile(
    r"gloo|connection|unavailable|deadline_exceeded|heartbeat|aborted|cancelled|socket",
    re.IGNORECASE,
)
log = logging.getLogger("trainer")


@dataclass
class Script:
    """The state that all fits of this process share."""

    job: Job
    environ: Mapping[str, str]
    workers: Any  # JaxWorkers, which has the methods of Workers that are called
    stop: StopRequest
    journal: Journal
    fits: Fits
    before: Owner | None
    number: int = 0
    has_failed: bool = False
    pid: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    locks: dict[Path, IO[str]] = field(default_factory=dict)

    @property
    def keeps(self) -> bool:
        """Whether its fits have checkpoints."""
        return bool(self.job.config.checkpoint_steps)

    def note(self, code: int, reason: str | None) -> None:
        """Note how the process ends."""
        if self.keeps:
            self.journal.note(status_of(code), reason or "")


_script: list[Script] = []
_beginning = threading.Lock()


def fit(run: Callable[..., Any], given: inspect.BoundArguments, environ: Mapping[str, str]) -> Any:
    """Run a `fit` from where an earlier start has left it; return its History.

    Raises:
        SystemExit: with code 78, after a message, if something does not fit.
    """
    num_workers = 1
    try:
        with _beginning:
            if not _script:
                _script.append(_begun(environ))
        script = _script[0]
        num_workers = script.workers.count
        if not script.lock.acquire(blocking=False):
            if num_workers == 1:
                return run(*given.args, **given.kwargs)  # Keras's own, which keeps nothing
            refusals.refuse_inner()
        try:
            with script.stop.handled():
                return _fit(script, run, given)
        finally:
            script.lock.release()
    except BaseException as error:
        _failed(_script[0] if _script else None, _explained(error), num_workers)
        raise


def _failed(script: Script | None, error: BaseException, num_workers: int) -> None:
    if script is None:
        if isinstance(error, Exception):
            end_by(error, num_workers=1)
        return
    script.has_failed = True
    if isinstance(error, StopRequestedError):
        script.stop.call_scripts_handler()
    if isinstance(error, ConfigurationError):
        script.workers.refuse("; ".join(map(str, error.problems)))
    if isinstance(error, Exception):
        # The others wait in the middle of a step for a worker that goes on alone.
        end_by(error, num_workers, script.note, is_script=num_workers == 1)
    elif num_workers > 1:
        leave_process(1, f"a fit was ended by {type(error).__name__}")


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, jax.errors.JaxRuntimeError) and OF_A_LOST_PEER.search(str(error)):
        return PeerLostError(f"a peer was lost ({str(error).splitlines()[0][:200]})")
    return error


def _begun(environ: Mapping[str, str]) -> Script:
    """Read the settings, and take this worker's folder."""
    try:
        job = read_job(environ, [])
    except ConfigurationError:
        if environ.get("TRAINER_RUN_DIR"):
            raise
        job = read_job(environ, [], {"run_dir": gettempdir(), "checkpoint_steps": 0})
    start_log(job.task.name, view=job.view)
    refusals.refuse_settings(job)
    workers = present()
    if workers.count != job.task.num_workers:
        accepted = "the process that the entrypoint has started"
        received = f"process {os.getpid()}, which another one has started"
        raise ConfigurationError([Problem("fit", received, accepted)])
    keeps, before = bool(job.config.checkpoint_steps), None
    script = Script(
        job,
        environ,
        workers,
        StopRequest(leave_process),
        Journal(job.folder),
        Fits(job.folder, keeps=keeps),
        before,
    )
    if keeps:
        taken = claim(job.folder, this_process(environ, script_name()), script.locks)
        if taken.other is not None:
            accepted = (
                f"one process that fits; {taken.other.script} ({taken.other.pid}) has done so"
            )
            raise ConfigurationError([Problem("fit", f"process {os.getpid()}", accepted)])
        script.before = taken.before
    _compare(workers, {"the script's files": digest_of(repr(sorted(dict(texts()).items())))})
    begin_anew(job, script.workers, Leftovers(job), script.before, environ)
    atexit.register(_note_end, script)
    return script


def _note_end(script: Script) -> None:
    if script.pid == os.getpid() and script.keeps and not script.has_failed:
        script.journal.note("done", "the script has ended")
        end_mark.mark(script.job.folder, script.workers, script.environ)


def _compare(workers: JaxWorkers, facts: Mapping[str, str]) -> None:
    """Refuse what differs between workers; all call it.

    Raises:
        ConfigurationError: with each fact that differs, on every worker.
    """
    everyone = [json.loads(one) for one in workers.exchange(json.dumps(dict(facts)), "facts")]
    problems = []
    for name in sorted({name for one in everyone for name in one}):
        values = [str(one.get(name)) for one in everyone]
        if len(set(values)) > 1:
            told = ", ".join(f"worker-{rank}: {value}" for rank, value in enumerate(values))
            mine = values[workers.rank]
            problems.append(Problem(name, mine, "the same on all workers", f"{told}."))
    if problems:
        raise ConfigurationError(problems)


def _fit(script: Script, run: Callable[..., Any], given: inspect.BoundArguments) -> Any:
    job, workers, model = script.job, script.workers, given.args[0]
    number, script.number = script.number, script.number + 1
    if script.keeps:
        end_mark.await_nothing(job.folder)
    refusals.refuse_fit(given, several=workers.count > 1)
    called = script.fits.call(_weights_of(model), inspect.currentframe())
    chosen = script.fits.choose(called, workers)
    batches = _batches(given, number)
    described = _described(model, given, batches)
    _compare(workers, described)
    store = Store(fit_folder(chosen.folder))
    store.tidy()
    steps = job.config.checkpoint_steps
    every = min(workers.gather(steps, "whether checkpoints are kept"))
    found = find_newest(store, workers, job.task) if every else None
    _say(found, chosen, job)
    if every:
        script.fits.note(chosen)
    saver = Saver(store, lambda _: touch(job.progress_file) if job.progress_file else None)
    before = model.train_function
    try:
        if found:
            keep(found, saver)
        train = Steps(model, lambda: bool(script.stop.signal_number))
        own = Own(script, saver, every, found, chosen, described, train, batches)
        _arrange(given, own)
        model.train_function = train
        script.journal.of_fit(f"fit-{chosen.number}").note("training")
        history = run(*given.args, **given.kwargs)
    finally:
        model.train_function = before
        saver.close()
    if script.keeps:
        end_mark.await_end(job.folder, workers, script.environ)
    if script.stop.signal_number:  # too late for this fit to end by it
        os.kill(os.getpid(), script.stop.signal_number)
    return history


@dataclass(frozen=True)
class Own:
    """What is made for one fit."""

    script: Script
    saver: Saver
    every: int
    found: Found | None
    chosen: Chosen
    described: Mapping[str, str]
    steps: Steps
    batches: GlobalBatches


def _arrange(given: inspect.BoundArguments, own: Own) -> None:
    """Change a fit's arguments: its data, its callbacks, and where it begins."""
    arguments, job, workers = given.arguments, own.script.job, own.script.workers
    callbacks = arguments.get("callbacks") or []
    callbacks = callbacks.callbacks if hasattr(callbacks, "callbacks") else callbacks
    callbacks = [one for one in keras.tree.flatten(callbacks) if one is not None]
    callbacks = for_worker(callbacks, is_chief=job.task.is_chief, keeps=bool(own.every))
    if not any(isinstance(one, keras.callbacks.History) for one in callbacks):
        callbacks.append(keras.callbacks.History())
    for one in callbacks:
        if own.found and isinstance(one, keras.callbacks.CSVLogger):
            one.append = True
    file = MetricsFile(own.chosen.folder)
    metrics = EpochMetrics(
        place=lambda: keeping.place,
        examples_at=None,
        test_examples=None,
        report=lambda lines, _: file.note(lines) if lines and job.task.is_chief else None,
    )
    records = ClusterTrainerRecords(lambda: [metrics] if own.every else [])
    begin = int(arguments.get("initial_epoch", 0))
    keeping = Keeping(
        workers,
        own.saver,
        own.every,
        own.found,
        own.described,
        [*callbacks, records],
        own.steps,
        own.batches,
        own.script.stop,
        begin,
    )
    report = ProgressReport(status_file(job.status_file), lambda: keeping.place, has_limit=True)
    epochs, place = int(arguments.get("epochs", 1)), keeping.place
    if place.epoch > epochs and not place.stopped:
        accepted = f"{place.epoch} or more, the epochs that the checkpoint has trained"
        raise ConfigurationError([Problem("epochs", str(epochs), accepted)])
    first = epochs if place.stopped else min(place.epoch, epochs)
    if place.stage == Stage.ALL and first == epochs:  # they have nothing left to see
        callbacks = [one for one in callbacks if isinstance(one, keras.callbacks.History)]
        keeping = _of(own, callbacks, begin)
        arguments |= {"callbacks": [*callbacks, keeping]}
    else:
        everyone = [LogsOfChief(workers), *callbacks, records, report, keeping]
        arguments |= {"callbacks": everyone}
    arguments["initial_epoch"] = first
    if not job.task.is_chief:
        arguments["verbose"] = 0


def _of(own: Own, callbacks: list[Any], begin: int) -> Keeping:
    script = own.script
    return Keeping(
        script.workers,
        own.saver,
        0,
        own.found,
        own.described,
        callbacks,
        own.steps,
        own.batches,
        script.stop,
        begin,
    )


def _batches(given: inspect.BoundArguments, number: int) -> GlobalBatches:
    """Let Keras read the global batches, in an order that is the same on all workers."""
    arguments = given.arguments
    names = ("x", "y", "sample_weight")
    data = tuple(arguments.get(name) for name in names)
    split = arguments.get("validation_split", 0.0)
    if split and arguments.get("validation_data") is None:
        data, validation = keras_jax_names.train_validation_split(data, validation_split=split)
        arguments |= {"validation_data": validation, "validation_split": 0.0}
    x, y, sample_weight = data
    adapter = keras_jax_names.get_data_adapter(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=arguments.get("batch_size"),
        steps_per_epoch=arguments.get("steps_per_epoch"),
        shuffle=arguments.get("shuffle", True),
        class_weight=arguments.get("class_weight"),
    )
    refusals.refuse_data(adapter)
    seed = any_backend.get_random_seed()
    batches = GlobalBatches(adapter, number if seed is None else seed + number)
    given.arguments |= {"x": batches, "y": None, "sample_weight": None, "class_weight": None}
    return batches


def _described(model: Any, given: inspect.BoundArguments, batches: GlobalBatches) -> dict[str, str]:
    """Return what must be the same on all workers, and when the fit resumes: name -> value."""
    layers = [[type(one).__name__, _config_of(one)] for one in keras_jax_names.layers_of(model)]
    weights = given.arguments.get("class_weight")
    try:
        compiled = json.dumps(model.get_compile_config(), default=_name, sort_keys=True)
    except Exception:  # noqa: BLE001  a loss of a user's own may not describe itself
        compiled = _name(model.loss)
    return {
        **batches.described,
        "the steps per epoch": str(given.arguments.get("steps_per_epoch")),
        "the optimizer, losses and metrics": _digest(compiled),
        "the layers": _digest(json.dumps(layers, default=_name, sort_keys=True)),
        "the class weights": str(weights),
    }


def _config_of(layer: Any) -> Any:
    try:
        config = layer.get_config()
    except Exception:  # noqa: BLE001  a user's own get_config may raise anything
        return None
    named = {"name", "seed", "trainable", "layers", "build_config"}
    return {name: value for name, value in config.items() if name not in named}


def _name(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)


def _digest(text: str) -> str:
    plain = re.sub(r" at 0x[0-9a-f]+", "", COUNTED.sub("", text))
    return sha256(plain.encode()).hexdigest()[:12]


def _weights_of(model: Any) -> Any:
    """Return a summary of a model's weights; None if there are none yet."""
    if not (model.built and model.variables):
        return None
    return summary_of([sampled(np.asarray(one.value).reshape(-1)) for one in model.variables])


def _say(found: Found | None, chosen: Chosen, job: Job) -> None:
    if found is None:
        if job.config.resume == "must":
            accepted = "auto or never, since no worker holds a whole checkpoint"
            raise ConfigurationError([Problem("TRAINER_RESUME", "must", accepted)])
        log.info("%s: no checkpoint on any worker: starting at step 0", chosen.name)
        return
    place = found.checkpoint.place
    if place.stage == Stage.ALL:
        chosen.refuse_if_doubtful()
        log.info("%s: had ended after %d steps", chosen.name, place.step)
    chosen.say_doubts()
    log.info("%s: resuming from step %d held by %s", chosen.name, place.step, found.holder)

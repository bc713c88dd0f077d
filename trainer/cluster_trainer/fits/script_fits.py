"""Each `fit` of a script, with what the trainer's own has: checkpoints, resume, stops, exit codes.

What all fits of a script share is here; one of them is kept_fit.py's.
"""

import atexit
import fcntl
import inspect
import json
import logging
import os
import shutil
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import Any, NoReturn
from weakref import WeakSet

import keras

from cluster_trainer.callbacks.as_given import AsGiven
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.distribution.ring import warn_of_all_workers
from cluster_trainer.engine.data.given import GivenArrays
from cluster_trainer.engine.first_batch import mode as first_batch
from cluster_trainer.engine.running import Running, of_a_user
from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.fits.about import asked_of
from cluster_trainer.fits.kept.beginning import Beginning
from cluster_trainer.fits.kept.compiled import optimizer_described
from cluster_trainer.fits.kept.kept_fit import CHECKPOINTS, KeptFit, close
from cluster_trainer.fits.kept.plan import Plan
from cluster_trainer.fits.lost_worker import Survivor, explained
from cluster_trainer.fits.script_records import MOST_SHOWN, ScriptRecords, is_profiled
from cluster_trainer.fits.script_settings import unheeded, unused_variables
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.lifecycle import judge, leave_process, status_of, tell
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.process.watch import STALLED
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.progress import LiveFile
from cluster_trainer.results.report import Onlooker, start_log
from cluster_trainer.results.status_file import status_file
from cluster_trainer.settings.job import Job, read_job

ENDED, LOCK = "ENDED", "LOCK"
LEAVING_SECONDS = 60.0
LAST_WORDS_SECONDS = 2.0
BEGINNING = "the first fit"
log = logging.getLogger("trainer")


@dataclass
class Process:
    """What all fits of a script share.

    Attributes:
        job: the settings, and which worker this is.
        stop: whether this process was asked to stop.
        beginning: of the run.
        deadline: until when a call of TensorFlow must be over.
        pid: this process's, and not that of one that it has forked off.
        has_agreed: whether the workers have agreed on where the script goes on.
        has_failed: whether a fit did not end well, so that the script's end is none. One that ends
            well after it says that the script has got over that.
        was_interrupted: whether somebody has, as by Ctrl-C, and may go on another time.
        has_recorded: whether a fit was recorded since this process has begun, or begun again.
        journal: of this worker.
        last: makes the last call to the others.
    """

    job: Job
    stop: StopRequest
    beginning: Beginning
    deadline: Deadline = field(default_factory=Deadline)
    has_agreed: bool = False
    has_failed: bool = False
    was_interrupted: bool = False
    has_recorded: bool = False
    pid: int = field(default_factory=os.getpid)
    last: LastCall = field(default_factory=LastCall)
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(self.job.folder)

    @property
    def records(self) -> bool:
        """Whether anything is recorded: not where nothing is kept, nor by a forked process."""
        return self.pid == os.getpid() and bool(self.job.config.checkpoint_steps)

    def note(self, state: str, detail: str = "") -> None:
        """Note what the script is at, if anything is recorded."""
        if self.records:
            self.journal.note(state, detail)


_process: Process | None = None
_locks: list[Any] = []  # open as long as the process lives


def fit(
    run: Callable[..., Any],
    given: inspect.BoundArguments,
    call: Running,
    number: int,
    environ: Mapping[str, str],
) -> Any:
    """Run a `fit`, from where an earlier start of the script has left it.

    Where a peer is lost (exit code 75), or the process is asked to stop (143, after a checkpoint),
    it does not return but ends the process: TensorFlow could not go on in it. The entrypoint
    starts the script again after the one and not after the other.

    Args:
        run: runs it, with its arguments and what is to be announced.
        given: its arguments.
        call: is announced.
        number: counts the fits of this process, from 0.
        environ: TRAINER_ variables, TF_CONFIG, and what the entrypoint sets.

    Raises:
        SystemExit: with code 78, after a message, if something does not fit.
    """
    try:
        process = _begin(environ)
        with process.stop.handled(), process.deadline.kept(_stalled):
            history = _history(process, number, run, given, call)
    except BaseException as error:
        if _process is not None:
            _process.has_failed = True
            _process.was_interrupted |= isinstance(error, KeyboardInterrupt)
        if not isinstance(error, Exception):
            raise
        num_workers = _process.job.task.num_workers if _process else 1
        _end(error, num_workers)
        raise
    finally:
        _tell_nothing_more()
    process.has_failed = process.was_interrupted
    if process.stop.signal_number:  # too late for this fit to end by it
        os.kill(os.getpid(), process.stop.signal_number)
    return history


def has_begun() -> bool:
    """Tell whether a `fit` of this process has begun, so that its end is seen to."""
    return _process is not None


def _tell_nothing_more() -> None:
    """Remove the file that says where the fit is."""
    if _process is not None:
        LiveFile(_process.job.live_file).remove()


def _begin(environ: Mapping[str, str]) -> Process:
    """Return what all fits share; the first one reads the settings."""
    global _process  # noqa: PLW0603  it is this process's
    if _process is None:
        job = _read(environ)
        _lock(job)
        LiveFile(job.live_file).remove()  # of a start that was killed
        _process = Process(job, StopRequest(leave_process), Beginning(job))
        first_batch.use(job.config.first_batch, available_bytes)
        os.register_at_fork(after_in_child=_forget_signals)
    return _process


def _history(
    process: Process,
    number: int,
    run: Callable[..., Any],
    given: inspect.BoundArguments,
    call: Running,
) -> Any:
    """Run a fit; again, from the newest checkpoint, where another worker of its ring was lost."""
    model = given.args[0]
    described = _described(model)  # callbacks may change the learning rate
    asked = _asked(process, model, number, given.arguments)
    latest: list[KeptFit] = []  # one at most: each holds a checkpoint
    callbacks: list[AsGiven] = []  # one at most, where the fit may begin again in this process
    arrays = GivenArrays(*map(given.arguments.get, ("x", "y", "sample_weight")))

    def work(is_again: bool) -> Any:  # noqa: FBT001
        workers = workers_of(model.distribute_strategy)
        if is_again:
            process.job = replace(process.job, is_restart=True)
            process.has_recorded = False  # what has happened meanwhile is told with the next start
        if callbacks:
            callbacks[0].restore()
        elif survivor.goes_on:
            callbacks.append(AsGiven(of_a_user(given.arguments.get("callbacks"))))
        if is_again or not process.has_agreed:
            _begin_anew(process.job, process.beginning, workers, process.journal)
        if not process.has_agreed:
            if process.job.may_be_fewer and ring_of(model.distribute_strategy) is None:
                warn_of_all_workers()
            atexit.register(_note_end, process, workers)
        process.has_agreed = True
        if not process.has_recorded:
            _take_over(process)
        plan = _plan(process, model, number, described, asked)
        plan = replace(plan, has_trained=survivor.has_trained, may_take_in=survivor.goes_on)
        close(latest)
        latest[:] = [KeptFit(plan, model)]
        process.has_recorded = True
        # Each time as they were given: a fit changes both.
        own = inspect.BoundArguments(given.signature, OrderedDict(given.arguments))
        return latest[0].run(run, own, replace(call, alike=WeakSet(), arrays=arrays))

    def rehearse() -> None:
        plan = replace(_plan(process, model, number, described, asked), rehearses=True)
        own = inspect.BoundArguments(given.signature, OrderedDict(given.arguments))
        KeptFit(plan, model).run(run, own, replace(call, alike=WeakSet(), arrays=arrays))

    status = status_file(process.job.status_file)
    survivor = Survivor(process.job.task, process.stop, status, partial(_note_waiting, process))
    try:
        return survivor.run(work, lambda: latest[0] if latest else None, rehearse)
    finally:
        arrays.let_go()
        close(latest)


def _note_waiting(process: Process, waiting: str) -> None:
    _tell_nothing_more()
    process.note("waiting", waiting)


def _take_over(process: Process) -> None:
    """Take over what the entrypoint has noted since that was done last."""
    if process.records:
        process.journal.take_over(process.job.events_file)


def _described(model: keras.Model) -> dict[str, str]:
    """Return what must be as it was for a fit to go on: name -> value."""
    return {"the script": Path(sys.argv[0]).name, **optimizer_described(model)}


def _asked(
    process: Process, model: keras.Model, number: int, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the script asks of its fit of a number, if it is to be written down here."""
    if not (process.records and process.job.task.is_chief and number < MOST_SHOWN):
        return {}
    try:
        return asked_of(model, arguments)
    except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
        log.warning("what the fit is asked for cannot be told: %r; training goes on", error)
        return {}


def _plan(
    process: Process,
    model: keras.Model,
    number: int,
    described: Mapping[str, str],
    asked: Mapping[str, Any],
) -> Plan:
    """Return how the script's fit of a number is kept; say so if each worker trains by itself."""
    job, name = process.job, f"fit {number + 1}"
    if workers_of(model.distribute_strategy).count == 1 < job.task.num_workers:
        log.warning(
            "%s trains on this worker alone: its model was not made in the scope of a "
            "MultiWorkerMirroredStrategy",
            name,
        )
    return Plan(
        job=job,
        stop=process.stop,
        deadline=process.deadline,
        folder=job.folder / name.replace(" ", "-") / CHECKPOINTS,
        described=described,
        name=name,
        must_resume=number == 0 and job.config.resume == "must",
        interrupts=True,
        listener=Onlooker(LiveFile(job.live_file), job.view),
        cuts=job.config.profile_cuts if is_profiled(number) else [],
        records=_records(process, model, number, asked),
    )


def _records(
    process: Process, model: keras.Model, number: int, asked: Mapping[str, Any]
) -> Callable[[KeptFit], Sequence[keras.callbacks.Callback]] | None:
    """Return what makes the records of the script's fit of a number; None: it has none."""
    if not process.records:
        return None
    is_first, script = not process.has_recorded, Path(sys.argv[0]).name
    return ScriptRecords(process.job, number, process.journal, model, script, is_first, asked).made


def _read(environ: Mapping[str, str]) -> Job:
    """Read the settings; where nobody has given a folder and there is none, nothing is kept.

    Raises:
        ConfigurationError: something is not acceptable.
    """
    try:
        job = read_job(environ, [])
    except ConfigurationError:
        if environ.get("TRAINER_RUN_DIR"):
            raise
        job = read_job(environ, [], {"run_dir": gettempdir(), "checkpoint_steps": 0})
        start_log(job.task.name, view=job.view)
        log.warning("/runs cannot be written, so that no checkpoints are kept (TRAINER_RUN_DIR)")
    start_log(job.task.name, view=job.view)
    if unused := unused_variables(environ, unheeded()):
        log.warning(
            "Keras's own fit takes nothing from %s: a script says itself what it trains, and how",
            ", ".join(unused),
        )
    return job


def _lock(job: Job) -> None:
    """Keep out of a folder that another process trains into: each would go on from the other's.

    Raises:
        ConfigurationError: there is one.
    """
    if not job.config.checkpoint_steps:
        return
    make_folder(job.folder)
    file = (job.folder / LOCK).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        accepted = "a folder that no other process trains into"
        advice = f"One does, into {job.folder}; TRAINER_CHECKPOINT_STEPS=0 keeps no checkpoints."
        folder = str(job.config.run_dir)
        raise ConfigurationError([Problem("TRAINER_RUN_DIR", folder, accepted, advice)]) from error
    except OSError:  # a file system without locks
        log.warning("%s cannot be locked: no other process may train into it", job.folder)
    _locks.append(file)


def _begin_anew(job: Job, beginning: Beginning, workers: Workers, journal: Journal) -> None:
    """Remove what an earlier start has left, if that has ended, or if it is not wanted."""
    mark = job.folder / ENDED
    has_ended = _has_ended(mark, workers)
    if not beginning.is_over and job.config.checkpoint_steps:
        if has_ended:
            log.info("the script has ended before with this TRAINER_RUN_DIR: it begins anew")
        if has_ended or job.config.resume == "never":
            for fits in job.folder.glob("fit-*"):
                shutil.rmtree(fits, ignore_errors=True)
            journal.begin_anew()
        beginning.end()
    workers.gather(0, BEGINNING)  # until all have: killed before, each begins anew again
    mark.unlink(missing_ok=True)


def _has_ended(mark: Path, workers: Workers) -> bool:
    """Tell whether the script has ended on all workers that were there at its end; all call it.

    The chief's mark says who that was (MIN_WORKERS): those who were missing have none.
    """
    have_mark = workers.gather(int(mark.exists()), BEGINNING)
    if not have_mark[0]:
        return False
    text = workers.broadcast(mark.read_bytes() if workers.rank == 0 else None, 0, BEGINNING)
    members = json.loads(text) if text.strip() else workers.members  # of an earlier version: all
    of_members = [
        one for place, one in zip(workers.members, have_mark, strict=True) if place in members
    ]
    return all(of_members)


def _forget_signals() -> None:
    """Let a process that a script forks end by the signals that end others."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _note_end(process: Process, workers: Workers) -> None:
    """Mark the end of a script that ends well, and let no worker leave before the others.

    One that fails leaves at once: the others may wait for it in the middle of a step, and so it
    does not wait for ever after a `sys.exit` either, which nothing tells from an end.
    """
    if process.pid != os.getpid():
        return
    if not meets_the_others(workers, process.last, has_failed=process.has_failed):
        process.note("failed", "the script did not end well")
        return
    process.note("done", "the script has ended")
    if process.job.config.checkpoint_steps:
        try:
            content = json.dumps(workers.members).encode()
            write_whole(process.job.folder / ENDED, content, durable=False)
        except OSError:
            log.warning("the script's end could not be noted in %s", process.job.folder)


def meets_the_others(workers: Workers, last: LastCall, *, has_failed: bool = False) -> bool:
    """Meet the other workers at the end of a script, if it ends well; tell whether it does.

    Where another one has failed, or was killed, the process ends with 75: that one is started
    again, and needs the others.

    Args:
        workers: this one and the others.
        last: makes the call.
        has_failed: whether something has, in spite of which the script has come here.
    """
    if getattr(sys, "last_value", None) is not None:
        workers.fail("its script has failed")
        return False
    if has_failed:
        return False
    met: list[Exception | None] = []
    last.make(lambda: met.append(workers.part()), LEAVING_SECONDS)
    if not met:
        workers.leave()
    elif met[0]:
        leave_process(*judge(explained(met[0]), workers.count))
    return True


def _stalled() -> NoReturn:
    # A disk that hangs may be why it has stalled, and holds nobody here.
    last = Thread(target=_tell_the_last, daemon=True)
    last.start()
    last.join(LAST_WORDS_SECONDS)
    leave_process(STALLED.code, STALLED.reason or "")


def _tell_the_last() -> None:
    _tell_nothing_more()
    _note_code(STALLED.code, STALLED.reason or "")


def _end(error: Exception, num_workers: int) -> None:
    """End the process as the trainer would, unless the error is the script's own affair.

    Raises:
        SystemExit: something does not fit, and no peer would wait for this process to be gone.
    """
    error = explained(error)
    code, reason = judge(error, num_workers)
    if code == ExitCode.CRASHED:
        return
    tell(error, num_workers)
    _note_code(code, reason)
    if isinstance(error, ConfigurationError) and num_workers == 1:
        raise SystemExit(code)
    _tell_nothing_more()
    leave_process(code, reason)


def _note_code(code: int, reason: str | None) -> None:
    """Note with what code the process ends, and why."""
    if _process is not None:
        _process.note(status_of(code), reason or "")

"""Each `fit` of a script, with what the trainer's own has: checkpoints, resume, stops, exit codes.

What all fits of a script share is here; one of them is kept_fit.py's.
"""

import atexit
import inspect
import logging
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from cluster_trainer.fits.about import asked_of
from cluster_trainer.fits.identity import earlier, ending, owner
from cluster_trainer.fits.identity.fits import ANEW, Chosen, Fits
from cluster_trainer.fits.identity.owner import Claim, Lock, Owner, script_name, this_process
from cluster_trainer.fits.kept.beginning import Beginning
from cluster_trainer.fits.kept.compiled import optimizer_described, training_described
from cluster_trainer.fits.kept.kept_fit import CHECKPOINTS, KeptFit, close
from cluster_trainer.fits.kept.plan import Plan
from cluster_trainer.fits.lost_worker import Survivor, explained
from cluster_trainer.fits.script_records import MOST_SHOWN, ScriptRecords, is_profiled
from cluster_trainer.fits.script_settings import unheeded, unused_variables
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem, StopRequestedError
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.lifecycle import judge, leave_process, status_of, tell
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.process.watch import STALLED
from cluster_trainer.results.journal import FILE as EVENTS
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.progress import LiveFile
from cluster_trainer.results.report import Onlooker, start_log
from cluster_trainer.results.status_file import status_file
from cluster_trainer.settings.job import Job, read_job

LEAVING_SECONDS = 60.0
LAST_WORDS_SECONDS = 2.0
log = logging.getLogger("trainer")


@dataclass
class Process:
    """What all fits of a script share.

    Attributes:
        job: the settings, and which worker this is.
        stop: whether this process was asked to stop.
        beginning: of the run.
        deadline: until when a call of TensorFlow must be over.
        environ: what the entrypoint sets.
        fits: this process's, and those that are kept in the worker's folder.
        claim: whose that folder was before.
        lock: of that folder.
        pid: this process's, and not that of one that it has forked off.
        has_agreed: whether the workers have agreed on where the script goes on.
        has_failed: whether a fit did not end well, so that the script's end is none. One that ends
            well after it says that the script has got over that.
        was_interrupted: whether somebody has, as by Ctrl-C, and may go on another time.
        has_recorded: whether a fit was recorded since this process has begun, or begun again.
        has_passed: whether a fit had ended in an earlier start, and was not run again.
        journal: of this worker.
        last: makes the last call to the others.
    """

    job: Job
    stop: StopRequest
    beginning: Beginning
    environ: Mapping[str, str] = field(default_factory=dict)
    claim: Claim = field(default_factory=Claim)
    lock: Lock = field(default_factory=Lock)
    deadline: Deadline = field(default_factory=Deadline)
    has_agreed: bool = False
    has_failed: bool = False
    was_interrupted: bool = False
    has_recorded: bool = False
    has_passed: bool = False
    pid: int = field(default_factory=os.getpid)
    last: LastCall = field(default_factory=LastCall)
    journal: Journal = field(init=False)
    fits: Fits = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(self.job.folder)
        self.fits = Fits(self.job.folder, keeps=self.keeps)

    @property
    def records(self) -> bool:
        """Whether anything is recorded: not where nothing is kept, nor by a forked process."""
        return self.pid == os.getpid() and self.keeps

    @property
    def keeps(self) -> bool:
        """Whether its fits have checkpoints."""
        return bool(self.job.config.checkpoint_steps)

    def await_nothing(self) -> None:
        """Let an end that comes now be no end of the script: a fit has not ended well."""
        if self.keeps:
            ending.await_nothing(self.job.folder)

    def note(self, state: str, detail: str = "") -> None:
        """Note what the script is at, if anything is recorded."""
        if self.records:
            self.journal.note(state, detail)


_process: Process | None = None


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
        process.await_nothing()
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
    if process.keeps and not process.has_failed:
        workers = workers_of(given.args[0].distribute_strategy)
        ending.await_end(process.job.folder, workers, process.environ)
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
    """Return what all fits of this process share; the first one reads the settings."""
    global _process  # noqa: PLW0603  it is this process's
    if _process is None or _process.pid != os.getpid():
        lock = Lock()
        job, claim = _claimed(_read(environ), lock, this_process(environ, script_name()))
        LiveFile(job.live_file).remove()  # of a start that was killed
        stop = StopRequest(leave_process)
        _process = Process(job, stop, Beginning(job), environ, claim, lock)
        first_batch.use(job.config.first_batch, available_bytes)
        os.register_at_fork(after_in_child=_forget_signals)
    return _process


def _claimed(job: Job, lock: Lock, mine: Owner) -> tuple[Job, Claim]:
    """Take the worker's folder; where another process of this start has it, keep nothing.

    Raises:
        ConfigurationError: a process of another start trains into it.
    """
    if not job.config.checkpoint_steps:
        return job, Claim()
    claim = lock.claim(job.folder, mine)
    if claim.other is None:
        return job, claim
    log.warning(
        "the fits of this process (%s, %d) are not kept: only the first process of a start keeps "
        "its fits, and that was %s, %d. After a restart this one trains from the beginning",
        mine.script,
        mine.pid,
        claim.other.script,
        claim.other.pid,
    )
    config = job.config.model_copy(update={"checkpoint_steps": 0})
    return replace(job, config=config), claim


def _history(
    process: Process,
    number: int,
    run: Callable[..., Any],
    given: inspect.BoundArguments,
    call: Running,
) -> Any:
    """Run a fit; again, from the newest checkpoint, where another worker of its ring was lost."""
    model = given.args[0]
    described = _described(model, given.arguments)  # callbacks may change the learning rate
    called = process.fits.call(model, inspect.currentframe())
    asked = _asked(process, model, number, given.arguments)
    chosen: list[Chosen] = []  # one at most: the fit's folder
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
            _begin_anew(process, workers)
        if not process.has_agreed:
            if process.job.may_be_fewer and ring_of(model.distribute_strategy) is None:
                warn_of_all_workers()
            atexit.register(_note_end, process, workers)
        process.has_agreed = True
        if not process.has_recorded:
            _take_over(process)
        chosen[:] = [process.fits.choose(called, workers, *chosen)]
        plan = _plan(process, model, number, chosen[0], described, asked)
        plan = replace(plan, has_trained=survivor.has_trained, may_take_in=survivor.goes_on)
        close(latest)
        latest[:] = [KeptFit(plan, model)]
        process.has_recorded = True
        # Each time as they were given: a fit changes both.
        own = inspect.BoundArguments(given.signature, OrderedDict(given.arguments))
        return latest[0].run(run, own, replace(call, alike=WeakSet(), arrays=arrays))

    def rehearse() -> None:
        not_chosen = Chosen(number + 1, process.job.folder, called)
        plan = _plan(process, model, number, not_chosen, described, asked)
        plan = replace(plan, rehearses=True)
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


def _described(model: keras.Model, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return what must be as it was for a fit to go on: name -> value."""
    training = training_described(model, arguments)
    return {"the script": script_name(), **optimizer_described(model), **training}


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


def _plan(  # noqa: PLR0913, PLR0917  one fit, and what is known of it
    process: Process,
    model: keras.Model,
    number: int,
    chosen: Chosen,
    described: Mapping[str, str],
    asked: Mapping[str, Any],
) -> Plan:
    """Return how a fit is kept, `number` of this process; say if each worker trains by itself."""
    job = process.job
    if workers_of(model.distribute_strategy).count == 1 < job.task.num_workers:
        log.warning(
            "%s trains on this worker alone: its model was not made in the scope of a "
            "MultiWorkerMirroredStrategy",
            chosen.name,
        )
    return Plan(
        job=job,
        stop=process.stop,
        deadline=process.deadline,
        folder=chosen.folder / CHECKPOINTS,
        described=described,
        # The callbacks of a fit that had ended may have changed them.
        compares_layers=not process.has_passed,
        begins=lambda: process.fits.note(chosen),
        had_ended=partial(_pass_over, process, chosen),
        goes_on=chosen.say_doubts,
        name=chosen.name,
        must_resume=number == 0 and job.config.resume == "must",
        interrupts=True,
        listener=Onlooker(LiveFile(job.live_file), job.view),
        cuts=job.config.profile_cuts if is_profiled(number) else [],
        records=_records(process, model, chosen.number - 1, asked),
    )


def _pass_over(process: Process, chosen: Chosen) -> None:
    """Note that a fit had ended, whose results are given for the script's call.

    Raises:
        ConfigurationError: it may be another one.
    """
    chosen.refuse_if_doubtful()
    process.has_passed = True


def _records(
    process: Process, model: keras.Model, number: int, asked: Mapping[str, Any]
) -> Callable[[KeptFit], Sequence[keras.callbacks.Callback]] | None:
    """Return what makes the records of the fit in the folder of a number; None: it has none."""
    if not process.records:
        return None
    is_first = not process.has_recorded
    return ScriptRecords(
        process.job, number, process.journal, model, script_name(), is_first, asked
    ).made


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


def _begin_anew(process: Process, workers: Workers) -> None:
    """Move aside what an earlier start has left, if that has ended, or is not wanted.

    Raises:
        ConfigurationError: another script has left fits that have not ended.
    """
    job, before = process.job, process.claim.before
    if process.keeps:
        earlier.finish(job.folder)
    is_new = before is None and not any(job.folder.glob("fit-*"))
    has_ended = ending.has_ended(job.folder, workers, is_new=is_new)
    if process.keeps and not process.beginning.is_over:
        if has_ended or job.config.resume == "never":
            _move_aside(process, has_ended=has_ended)
        elif before and before.script != script_name():
            _refuse_other_script(job, before)
        process.beginning.end()
    ending.forget(job.folder, workers, keeps=process.keeps)


def _move_aside(process: Process, *, has_ended: bool) -> None:
    job, before = process.job, process.claim.before
    script = before.script if before else "a script"
    began = before.began if before else job.folder.stat().st_mtime
    fits = [one.name for one in job.folder.glob("fit-*")]
    place = earlier.move_aside(job.folder, [*fits, EVENTS], script, began)
    if place is None:
        return
    why = "has ended with this TRAINER_RUN_DIR" if has_ended else "is not gone on with"
    log.info("%s %s: the fits that it left in %s are now in %s", script, why, job.folder, place)
    owner.write(job.folder, this_process(process.environ, script_name()))
    earlier.keep_newest(job.folder, job.config.keep_earlier)


def _refuse_other_script(job: Job, before: Owner) -> None:
    """Refuse to train where another script was interrupted, which may still go on there.

    Raises:
        ConfigurationError: there are fits of it.
    """
    if any(job.folder.glob("fit-*")):
        owner.write(job.folder, before)
        accepted = f"{before.script}, whose fits in {job.folder} have not ended"
        raise ConfigurationError([Problem("the script", script_name(), accepted, ANEW)])


def _forget_signals() -> None:
    """Let a process that a script forks end by the signals that end others."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _note_end(process: Process, workers: Workers) -> None:
    """Mark the end of a script that ends well, and let no worker leave before the others.

    One that fails leaves at once: the others may wait for it in the middle of a step.
    """
    if process.pid != os.getpid():
        return
    if not meets_the_others(workers, process.last, has_failed=process.has_failed):
        process.note("failed", "the script did not end well")
        return
    process.note("done", "the script has ended")
    if process.keeps:
        ending.mark(process.job.folder, workers, process.environ)


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
    if _process is not None and isinstance(error, StopRequestedError):
        _process.stop.call_scripts_handler()
    _note_code(code, reason)
    if isinstance(error, ConfigurationError) and num_workers == 1:
        raise SystemExit(code)
    _tell_nothing_more()
    leave_process(code, reason)


def _note_code(code: int, reason: str | None) -> None:
    """Note with what code the process ends, and why."""
    if _process is not None:
        _process.note(status_of(code), reason or "")

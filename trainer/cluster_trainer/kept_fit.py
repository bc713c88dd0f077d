"""Each `fit` of a script, with what the trainer's own has: checkpoints, resume, stops, exit codes.

The only place besides train.py and api.py that knows all parts.
"""

import atexit
import fcntl
import inspect
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NoReturn

import keras

from cluster_trainer import agreement
from cluster_trainer.callbacks.chief import for_worker
from cluster_trainer.callbacks.keeper import KEPT_STATE, Keeper, Phase
from cluster_trainer.checkpoints.resume import Found, find_newest, keep, refuse_other_run
from cluster_trainer.checkpoints.saver import Saver, touch
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.epoch_iterator import workers_of
from cluster_trainer.engine.running import Running
from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.job import Job, read_job
from cluster_trainer.lifecycle import judge, leave_process, tell
from cluster_trainer.problems import (
    ConfigurationError,
    ExitCode,
    PeerStoppedError,
    Problem,
    StopRequestedError,
)
from cluster_trainer.report import start_log
from cluster_trainer.stall import Deadline, StallLimit
from cluster_trainer.stop import StopRequest
from cluster_trainer.watch import STALLED

ENDED, LOCK = "ENDED", "LOCK"
LEAVING_SECONDS = 60.0
log = logging.getLogger("trainer")


@dataclass
class Process:
    """What all fits of a script share.

    Attributes:
        job: the settings, and which worker this is.
        stop: whether this process was asked to stop.
        deadline: until when a call of TensorFlow must be over.
        has_failed: whether a fit did not end well, so that the script's end is none.
    """

    job: Job
    stop: StopRequest
    deadline: Deadline = field(default_factory=Deadline)
    has_failed: bool = False


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
    model = given.args[0]
    try:
        process = _begin(environ, model)
        with process.stop.handled(), process.deadline.kept(_stalled):
            history = KeptFit(process, model, number).run(run, given, call)
    except BaseException as error:
        if _process is not None:
            _process.has_failed = True
        if not isinstance(error, Exception):
            raise
        num_workers = _process.job.task.num_workers if _process else 1
        _end(error, num_workers)
        raise
    if process.stop.signal_number:  # too late for this fit to end by it
        os.kill(os.getpid(), process.stop.signal_number)
    return history


def _begin(environ: Mapping[str, str], model: keras.Model) -> Process:
    """Return what all fits share; the first one reads the settings, and looks for an end."""
    global _process  # noqa: PLW0603  it is this process's
    if _process is None:
        job = _read(environ)
        _lock(job)
        _process = Process(job, StopRequest(leave_process))
        workers = workers_of(model.distribute_strategy)
        _begin_anew(job, workers)
        os.register_at_fork(after_in_child=_forget_signals)
        atexit.register(_note_end, _process, workers)
    return _process


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
        start_log(job.task.name)
        log.warning("/runs cannot be written, so that no checkpoints are kept (TRAINER_RUN_DIR)")
    start_log(job.task.name)
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


def _begin_anew(job: Job, workers: Workers) -> None:
    """Remove what an earlier start has left, if that has ended, or if it is not wanted."""
    mark = job.folder / ENDED
    has_ended = min(workers.gather(int(mark.exists()))) == 1
    if has_ended and not job.is_restart:
        log.info("the script has ended before with this TRAINER_RUN_DIR: it begins anew")
    is_wanted = has_ended or job.config.resume == "never"
    if is_wanted and not job.is_restart and job.config.checkpoint_steps:
        for fits in job.folder.glob("fit-*"):
            shutil.rmtree(fits, ignore_errors=True)
    workers.gather(0)  # until all have: killed before, each begins anew again
    mark.unlink(missing_ok=True)


def _forget_signals() -> None:
    """Let a process that a script forks end by the signals that end others."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _note_end(process: Process, workers: Workers) -> None:
    """Mark the end of a script that ends well, and let no worker leave before the others.

    One that fails leaves at once: the others may wait for it in the middle of a step, and so it
    does not wait for ever after a `sys.exit` either, which nothing tells from an end.
    """
    if process.has_failed or getattr(sys, "last_value", None) is not None:
        return
    if process.job.config.checkpoint_steps:
        try:
            (process.job.folder / ENDED).touch()
        except OSError:
            log.warning("the script's end could not be noted in %s", process.job.folder)
    waiting = threading.Thread(target=workers.part, daemon=True)
    waiting.start()
    waiting.join(LEAVING_SECONDS)


def _stalled() -> NoReturn:
    leave_process(STALLED.code, STALLED.reason or "")


def _end(error: Exception, num_workers: int) -> None:
    """End the process as the trainer would, unless the error is the script's own affair.

    Raises:
        SystemExit: something does not fit, and no peer would wait for this process to be gone.
    """
    code, reason = judge(error, num_workers)
    if code == ExitCode.CRASHED:
        return
    tell(error, num_workers)
    if isinstance(error, ConfigurationError) and num_workers == 1:
        raise SystemExit(code)
    leave_process(code, reason)


class KeptFit:
    """One `fit` and its checkpoints.

    Args:
        process: what it shares with the others.
        model: what is trained.
        number: its place among them, from 0.
    """

    def __init__(self, process: Process, model: keras.Model, number: int) -> None:
        self._process, self._job, self._model = process, process.job, model
        self._number, self._workers = number, workers_of(model.distribute_strategy)
        if self._workers.count < self._job.task.num_workers:
            log.warning(
                "fit %d trains on this worker alone: its model was not made in the scope of a "
                "MultiWorkerMirroredStrategy",
                number + 1,
            )
        self._store = Store(self._job.folder / f"fit-{number + 1}" / "checkpoints")
        self._saver = Saver(self._store, self._note_saved)
        self._stops = False
        self._found: Found | None = None
        self.validates, self.seed = False, 0
        self.described: Mapping[str, str] = {"the script": Path(sys.argv[0]).name}

    def run(self, run: Callable[..., Any], given: inspect.BoundArguments, call: Running) -> Any:
        """Run it from the newest checkpoint of any worker, or from its beginning."""
        steps = min(self._workers.gather(self._job.config.checkpoint_steps))  # one may keep none
        found = self._find() if steps else None
        callbacks = self._callbacks(given.arguments.get("callbacks"), keeps=bool(steps))
        self._found = found
        self.seed = call.seed = found.checkpoint.progress["seed"] if found else call.seed
        data = given.arguments.get("validation_data")
        self.validates = data is not None or bool(given.arguments.get("validation_split"))
        keeper = Keeper(
            self._saver, steps or None, found.checkpoint if found else None, self, callbacks
        )
        if found:
            self._say(found, keeper)
            self._append_to_csv(callbacks)
        if not self._job.task.is_chief and given.arguments.get("verbose", "auto") in ("auto", 1):
            given.arguments["verbose"] = 0  # the progress bar is the chief's
        first = self._initial_epoch(given, keeper, found)
        if found and first >= int(given.arguments.get("epochs", 1)):  # nothing for them to see
            shown = [one for one in callbacks if isinstance(one, keras.callbacks.History)]
        else:
            shown = callbacks
        given.arguments |= {"initial_epoch": first, "callbacks": [*shown, keeper]}
        call.keeper, call.agree, call.meet = keeper, self._agree, self.meet
        call.limit = StallLimit(self._process.deadline, self._job.config.stall_timeout_seconds).call
        self._process.stop.is_watched = True
        try:
            history = run(given, call)
            self._saver.wait()
            self._store.keep_newest()
            self._share_files(callbacks)
            return history
        finally:
            self._saver.wait()
            self._process.stop.is_watched = False

    def _find(self) -> Found | None:
        """Return the newest checkpoint of any worker, which all have then."""
        self._store.tidy()
        found = find_newest(self._store, self._workers, self._job.task)
        if found:
            keep(found, self._store)
        return found

    def check(self, described: Mapping[str, str], names: Sequence[str]) -> None:
        """Refuse workers that differ, and a checkpoint of another fit; see callbacks.keeper.Plan.

        Raises:
            ConfigurationError: with everything that differs.
        """
        variables = {"the variables": f"{len(names)}, {agreement.digest_of(names)}"}
        agreement.refuse_differing(self._workers, self._job.task, {**described, **variables})
        if self._found:
            saved = self._found.checkpoint
            kept = [name for name in saved.names if not name.startswith(KEPT_STATE)]
            found = replace(self._found, checkpoint=replace(saved, names=kept))
            refuse_other_run(found, described, names)

    def any(self, wish: bool) -> bool:  # noqa: FBT001
        """Tell whether any worker wishes something."""
        return max(self._workers.gather(int(wish))) > 0

    def stops(self) -> bool:
        """Tell whether the workers have agreed to stop."""
        return self._stops

    def _callbacks(self, given: Any, *, keeps: bool) -> list[Any]:
        """Return the user's callbacks as this worker should have them, and Keras's History."""
        inner = getattr(given, "callbacks", given) or []
        callbacks = keras.tree.flatten(inner)
        is_chief = self._job.task.is_chief
        callbacks = for_worker(callbacks, is_chief=is_chief, keeps=keeps)
        if not any(isinstance(one, keras.callbacks.History) for one in callbacks):
            callbacks.append(keras.callbacks.History())
        return callbacks

    def _initial_epoch(
        self, given: inspect.BoundArguments, keeper: Keeper, found: Found | None
    ) -> int:
        if found is None:
            return int(given.arguments.get("initial_epoch", 0))
        epochs = int(given.arguments.get("epochs", 1))
        return epochs if keeper.place.stopped else min(keeper.place.epoch, epochs)

    def _say(self, found: Found, keeper: Keeper) -> None:
        place, name = keeper.place, f"fit {self._number + 1}"
        if place.phase == Phase.ALL:
            log.info("%s had ended after %d steps: not trained again", name, place.step)
        else:
            log.info("%s resumes from step %d held by %s", name, place.step, found.holder)

    def _append_to_csv(self, callbacks: list[Any]) -> None:
        for callback in callbacks:
            if isinstance(callback, keras.callbacks.CSVLogger):
                callback.append = True

    def _share_files(self, callbacks: Sequence[Any]) -> None:
        """Give all workers what the chief's ModelCheckpoint has written: a script may load it."""
        writing = [one for one in callbacks if isinstance(one, keras.callbacks.ModelCheckpoint)]
        if len(set(self._workers.gather(len(writing)))) > 1:
            log.info("a ModelCheckpoint of some workers alone: its file is not given to the others")
            return
        for callback in writing:
            file = Path(callback.filepath)
            if "{" in file.name:
                log.info("%s: only on the chief's disk, as each has a name of its own", file)
                continue
            is_here = self._workers.gather(int(file.is_file()))
            if is_here[0] and not all(is_here):
                mine = file.read_bytes() if self._job.task.is_chief else None
                content = self._workers.broadcast(mine, 0)
                if not is_here[self._job.task.rank]:
                    make_folder(file.parent)
                    write_whole(file, content, durable=False)

    def _agree(self, seconds: float) -> float:
        """Meet the other workers; return the slowest one's seconds, and note if one has to stop."""
        slowest, number = self._workers.largest([seconds, float(self._process.stop.signal_number)])
        self._stops = bool(number)
        return slowest

    def meet(self) -> None:
        """End the fit if the workers have agreed to.

        Raises:
            StopRequestedError: this worker was asked to stop.
            PeerStoppedError: another worker was.
        """
        if not self._stops:
            return
        if self._job.task.num_workers == 1 and self._process.stop.signal_number == signal.SIGINT:
            self._process.stop.signal_number = 0
            raise KeyboardInterrupt  # as everywhere in Python: the script may have plans
        if self._process.stop.signal_number:
            raise StopRequestedError(self._process.stop.signal_number)
        raise PeerStoppedError

    def _note_saved(self) -> None:
        if self._job.progress_file:
            touch(self._job.progress_file)

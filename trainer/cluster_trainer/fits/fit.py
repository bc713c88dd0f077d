"""Runs each `fit` of a script or the built-in trainer, with all that the image adds.

This happens in this order:

1. The calling program states its requests: `program.py`, `script/`, `builtin/`.
2. The workers meet, agree where the program resumes, and choose the fit's folder: `identity/`. With
   the built-in trainer they also compare settings and data.
3. They find the newest checkpoint, and give it to all: `kept/finding.py`. Then Keras's `fit` runs,
   through `engine/calls/announced.py`. Before the first step, `CheckpointCallback` lets the workers
   compare model and data (`kept/consistency_check.py`), and restores the checkpoint's values.
   `engine/epoch_iterator.py` shows what happens in each call of steps.
4. A stop, a lost worker or a returning worker may interrupt the fit. The workers that are left meet
   again, and continue with 2. in the same processes: `elastic_recovery.py`.
5. The fit ends with a result, with an error of the program's own, or with the process.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

from cluster_trainer.callbacks.as_given import AsGiven
from cluster_trainer.collectives.process_ring import are_rounds_open
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine.data.given_arrays import GivenArrays
from cluster_trainer.engine.running import Running, of_a_user
from cluster_trainer.fits.elastic_recovery import INTERRUPTIONS, ElasticRecovery
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.process_state import Process
from cluster_trainer.fits.program import FitRequest, Program
from cluster_trainer.fits.script.start import begin
from cluster_trainer.problems import ConfigurationError, Problem, RoundsChosenError
from cluster_trainer.process.exit_code import end_by
from cluster_trainer.results.status_file import status_file


@dataclass(frozen=True)
class Call:
    """One call of `fit`.

    Attributes:
        run: runs it with its arguments and its announcement.
        given: the call's arguments.
        announced: its announcement to the engine; see Running.
        arrays: the arrays among the arguments, which become tensors only once, even if it begins
            several times.
    """

    run: Callable[..., Any]
    given: inspect.BoundArguments
    announced: Running
    arrays: GivenArrays

    @property
    def model(self) -> Any:
        """The model that is trained."""
        return self.given.args[0]

    def anew(self) -> tuple[inspect.BoundArguments, Running]:
        """Return copies of the original arguments and announcement, because a fit changes both."""
        own = inspect.BoundArguments(self.given.signature, OrderedDict(self.given.arguments))
        return own, replace(self.announced, alike=WeakSet(), arrays=self.arrays)


def fit(
    process: Process,
    run: Callable[..., Any],
    given: inspect.BoundArguments,
    announced: Running,
    environ: Mapping[str, str],
) -> Any:
    """Run a `fit` from where an earlier start of its program has left it; return its History.

    In a script, two events end the process instead:

    - A peer is lost, and the fit cannot be repeated in this process: exit code 75. The entrypoint
      restarts the script.
    - The process is asked to stop: exit code 143, after a checkpoint. It is not restarted.

    Args:
        process: this process.
        run: runs the fit with its arguments and its announcement.
        given: the fit's arguments.
        announced: its announcement to the engine; see Running.
        environ: the environment: TRAINER_ variables, TF_CONFIG, and the entrypoint's variables.

    Raises:
        SystemExit: the settings are not acceptable, or workers or checkpoints do not match; code
            78, after a message.
    """
    program: Program | None = None
    try:
        program = process.program or begin(process, environ)
        with program.guarded(), _while_no_other_fits(process, program):
            arrays = GivenArrays(*map(given.arguments.get, ("x", "y", "sample_weight")))
            history = _to_its_end(program, Call(run, given, announced, arrays))
    except BaseException as error:
        _failed(program, error)
        raise
    finally:
        if program:
            program.look_away()
    program.ended(workers_of(given.args[0].distribute_strategy))
    return history


@contextmanager
def _while_no_other_fits(process: Process, program: Program) -> Iterator[None]:
    """Refuse a fit while another thread runs one, if there are several workers.

    Each worker may run its threads in a different order. Then the workers would wait forever in
    different fits.

    Raises:
        ConfigurationError: another thread runs a fit.
    """
    is_alone = process.fitting.acquire(blocking=False)
    if not is_alone and program.job.task.num_workers > 1:
        received, accepted = "two fits at a time, in two threads", "one after the other"
        raise ConfigurationError([Problem("fit", received, accepted, "Train without threads.")])
    try:
        yield
    finally:
        if is_alone:
            process.fitting.release()


def _failed(program: Program | None, error: BaseException) -> None:
    if program:
        program.failed(error)
    elif isinstance(error, Exception):  # the settings could not be read
        end_by(error, num_workers=1)


def _to_its_end(program: Program, call: Call) -> Any:
    """Train, and resume from the newest checkpoint as often as a worker is lost or comes back."""
    request = program.request(call.given)
    call = replace(call, announced=replace(call.announced, order=request.order()))
    status = status_file(program.job.status_file)
    recovery = ElasticRecovery(program.job.task, program.stop, status, program.waits)
    try:
        recovery.meet()
        if recovery.comes_late:
            recovery.come_late(lambda: _rehearsed(request, call))
        may_repeat = recovery.goes_on or are_rounds_open()
        users = AsGiven(_of_a_user(call) if may_repeat else [])
        while True:
            try:
                return _trained(request, call, recovery)
            except RoundsChosenError:
                waiting = ""
            except INTERRUPTIONS as error:
                waiting = recovery.interrupted(error, request.kept)
            # Outside of `except`, because the exception holds all data of the fit.
            if waiting:
                recovery.meet_again(waiting)
            else:
                recovery.begin_again()
            users.restore()
    finally:
        call.arrays.let_go()
        request.let_go()


def _trained(request: FitRequest, call: Call, recovery: ElasticRecovery) -> Any:
    """Agree with the present workers, find the newest checkpoint, and train from it."""
    workers = workers_of(call.model.distribute_strategy)
    request.agree(workers, is_again=recovery.is_again)
    options = replace(
        request.options(), has_trained=recovery.has_trained, may_take_in=recovery.goes_on
    )
    request.let_go()  # the previous attempt holds a checkpoint, and may still be writing one
    kept = request.kept = KeptFit(options, call.model)
    kept.find()
    return kept.run(call.run, *call.anew())


def _rehearsed(request: FitRequest, call: Call) -> Any:
    """Run a first step while the others train, and keep nothing of it."""
    options = replace(request.options_of_rehearsal(), rehearses=True)
    return KeptFit(options, call.model).run(call.run, *call.anew())


def _of_a_user(call: Call) -> list[Any]:
    return of_a_user(call.given.arguments.get("callbacks"))

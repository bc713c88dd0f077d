"""One `fit` on JAX, in the order in which it happens.

1. Unsupported settings and arguments are refused: `refusals.py`.
2. The process takes its worker's folder, and the workers agree which fit this is: `fits/identity`.
3. They compare their data, and find the newest checkpoint.
4. Keras's own `fit` runs, with `Steps` as its train function and `Keeping` as its last callback.
5. The fit returns a result. Or the process ends: with 143 after a stop, 75 if a worker is lost, or
   78 after a refusal.
"""

import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from cluster_trainer.checkpoints.checkpoint import Stage
from cluster_trainer.checkpoints.resume import Found, find_newest, keep
from cluster_trainer.checkpoints.saver import Saver, touch
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.fits.identity import end_mark
from cluster_trainer.fits.identity.saved_fits import Chosen
from cluster_trainer.fits.shared.files import ChiefsFiles
from cluster_trainer.on_jax import refusals
from cluster_trainer.on_jax.arguments import arrange, callbacks_of, global_batches
from cluster_trainer.on_jax.callbacks.keeping import fit_folder
from cluster_trainer.on_jax.comparison import (
    compare,
    compare_code,
    described,
    of_this_start,
    steering,
    unlike,
    weights_of,
)
from cluster_trainer.on_jax.one_fit import Fit
from cluster_trainer.on_jax.script import Script, begun
from cluster_trainer.on_jax.steps.step import Steps
from cluster_trainer.on_jax.workers.first_process import refuse_second_process
from cluster_trainer.on_jax.workers.lost_peer import tells_of_lost_peer
from cluster_trainer.problems import (
    ConfigurationError,
    PeerLostError,
    Problem,
    StopRequestedError,
)
from cluster_trainer.process.exit_code import end_by, leave_process
from cluster_trainer.settings.job import Job

log = logging.getLogger("trainer")


_script: list[Script] = []
_beginning = threading.Lock()


def fit(run: Callable[..., Any], given: inspect.BoundArguments, environ: Mapping[str, str]) -> Any:
    """Run a `fit` from where an earlier start has left it; return its History.

    Raises:
        SystemExit: a setting, an argument or a checkpoint is refused; code 78, after a message.
    """
    num_workers = 1
    try:
        refuse_second_process(os.environ)
        with _beginning:
            if not _script:
                _script.append(begun(environ))
        script = _script[0]
        num_workers = script.workers.count
        if not script.lock.acquire(blocking=False):
            if num_workers == 1:
                return run(*given.args, **given.kwargs)  # Keras's own `fit`, without checkpoints
            refusals.refuse_inner()
        try:
            with script.stop.handled():
                return _fit(script, run, given)
        finally:
            script.lock.release()
    except BaseException as error:
        begun_here = [one for one in _script if one.pid == os.getpid()]
        _failed(begun_here[0] if begun_here else None, _explained(error), num_workers)
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
        # If this worker continued alone, the others would wait for it in the middle of a step.
        end_by(error, num_workers, script.note, is_script=num_workers == 1)
    elif num_workers > 1:
        leave_process(1, f"a fit was ended by {type(error).__name__}")


def _explained(error: BaseException) -> BaseException:
    if tells_of_lost_peer(error):
        return PeerLostError(f"a peer was lost ({str(error).splitlines()[0][:200]})")
    return error


def _fit(script: Script, run: Callable[..., Any], given: inspect.BoundArguments) -> Any:
    job, workers, model = script.job, script.workers, given.args[0]
    number, script.number = script.number, script.number + 1
    if script.keeps:
        end_mark.await_nothing(job.folder)
    refusals.refuse_fit(given, several=workers.count > 1)
    compare_code(workers)
    called = script.fits.call(weights_of(model), inspect.currentframe())
    chosen = script.fits.choose(called, workers)
    class_weight = given.arguments.get("class_weight")
    batches = global_batches(given, number)
    facts = described(model, given, batches, class_weight)
    compare(workers, {**facts, **of_this_start(given)})
    store = Store(fit_folder(chosen.folder))
    store.tidy()
    steers = steering(callbacks_of(given))
    differing = unlike(workers, steers)
    every = min(workers.gather(job.config.checkpoint_steps, "whether checkpoints are kept"))
    found = find_newest(store, workers, job.task) if every else None
    _say(found, chosen, job)
    if every:
        script.fits.note(chosen)
    saver = Saver(store, lambda _: touch(job.progress_file) if job.progress_file else None)
    programs: dict[str, str] = {}
    fit = Fit(
        workers=workers,
        saver=saver,
        every=every,
        found=found,
        described={**facts, **steers},
        differing=differing,
        first=int(given.arguments.get("initial_epoch", 0)),
        steps=Steps(model, workers, lambda: bool(script.stop.signal_number), programs),
        batches=batches,
        programs=programs,
        stop=script.stop,
        files=_files(script, given, goes_on=found is not None),
    )
    before = model.train_function
    try:
        if found:
            keep(found, saver)
        arrange(given, fit, job, chosen.folder)
        model.train_function = fit.steps
        if script.keeps:
            script.journal.of_fit(f"fit-{chosen.number}").note("training")
        history = run(*given.args, **given.kwargs)
    finally:
        model.train_function = before
        saver.close()
        if fit.files:
            fit.files.let_go()
    if script.keeps:
        end_mark.await_end(job.folder, workers, script.environ)
    if script.stop.signal_number:  # it came too late to interrupt this fit
        os.kill(os.getpid(), script.stop.signal_number)
    return history


def _files(script: Script, given: inspect.BoundArguments, *, goes_on: bool) -> ChiefsFiles | None:
    if script.workers.count == 1:
        return None
    return ChiefsFiles(script.workers, callbacks_of(given), script.job.folder, goes_on=goes_on)


def _say(found: Found | None, chosen: Chosen, job: Job) -> None:
    if found is None:
        if job.config.resume == "must":
            accepted = "auto or never, because no worker has a complete checkpoint"
            raise ConfigurationError([Problem("TRAINER_RESUME", "must", accepted)])
        log.info("%s: no checkpoint on any worker: starting at step 0", chosen.name)
        return
    place = found.checkpoint.place
    if place.stage == Stage.ALL:
        chosen.refuse_if_doubtful()
        log.info("%s: had ended after %d steps", chosen.name, place.step)
    chosen.say_doubts()
    log.info("%s: resuming from step %d held by %s", chosen.name, place.step, found.holder)

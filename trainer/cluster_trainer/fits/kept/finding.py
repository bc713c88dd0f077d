"""Finds the beginning of a fit: the newest checkpoint of any worker, or step 0."""

import logging
from dataclasses import dataclass, replace

from cluster_trainer.checkpoints.checkpoint import Place, Stage
from cluster_trainer.checkpoints.resume import Found, find_newest
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.problems import ConfigurationError, PeerLostError, Problem
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names.spellings import shown_name, variable_of

KEEPS = "fit (whether it is kept)"
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Start:
    """The beginning of a fit.

    Attributes:
        every: the number of steps between two checkpoints; 0: none are saved.
        found: the newest checkpoint of any worker; None: no worker has one.
    """

    every: int = 0
    found: Found | None = None

    @property
    def place(self) -> Place:
        """The place of the checkpoint, or step 0."""
        return self.found.checkpoint.place if self.found else Place()

    @property
    def in_words(self) -> str:
        """A text about the step at which the fit begins."""
        if self.found is None:
            return "at step 0, without a checkpoint on any worker"
        return f"from step {self.place.step} held by {self.found.holder}"

    def lighter(self) -> "Start":
        """Return a copy without the checkpoint's values, which are as large as all variables."""
        if self.found is None:
            return self
        light = replace(self.found.checkpoint, arrays=[])
        return replace(self, found=replace(self.found, content=b"", checkpoint=light))


def find_start(options: FitOptions, store: Store, workers: Workers) -> Start:
    """Find the newest checkpoint of any worker, and give it to all; all workers call this.

    Raises:
        ConfigurationError: TRAINER_RESUME is must, and there is no checkpoint; or this worker is
            new, and only it, or only the others, save checkpoints.
        PeerLostError: there is no checkpoint, and only a new process could begin at step 0.
    """
    store.tidy()
    every = _agreed_steps(options, workers)
    if not every:
        if options.has_trained:
            raise PeerLostError("a peer was lost, and a worker keeps no checkpoints")
        return Start()
    found = find_newest(store, workers, options.job.task)
    if found:
        _say(found, options.prefix)
        return Start(every, found)
    if options.must_resume:
        _refuse_beginning(options.job.config)
    if options.has_trained:
        raise PeerLostError("a peer was lost, and no worker could keep a checkpoint")
    log.info("%sno checkpoint on any worker: starting at step 0", options.prefix)
    return Start(every)


def _agreed_steps(options: FitOptions, workers: Workers) -> int:
    """Return the smallest number of steps between two checkpoints; 0 if any worker saves none."""
    steps = options.job.config.checkpoint_steps
    wanted = workers.gather(steps, KEEPS)
    keep = [bool(one) for one in wanted]
    if len(set(keep)) > 1 and workers.leave_out(keep, variable_of("checkpoint_steps")):
        accepted = "0 on all workers or on none; without a folder that can be written it is 0"
        raise ConfigurationError([Problem(shown_name("checkpoint_steps"), str(steps), accepted)])
    return min(wanted)


def _say(found: Found, prefix: str) -> None:
    place = found.checkpoint.place
    if place.stage == Stage.ALL:
        log.info("%shad ended after %d steps", prefix, place.step)
    log.info("%sresuming from step %d held by %s", prefix, place.step, found.holder)


def _refuse_beginning(config: TrainerConfig) -> None:
    """Refuse to begin at step 0 if that is not allowed."""
    accepted = "auto or never, because no worker has a complete checkpoint"
    advice = f"Is {config.run_dir} the run's own directory, mounted on every worker?"
    raise ConfigurationError([Problem(shown_name("resume"), "must", accepted, advice)])

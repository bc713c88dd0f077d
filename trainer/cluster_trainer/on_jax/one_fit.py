"""What is made for one fit, and where an earlier start has left it."""

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass

from cluster_trainer.checkpoints.checkpoint import Place, Stage
from cluster_trainer.checkpoints.resume import Found
from cluster_trainer.checkpoints.saver import Saver
from cluster_trainer.fits.shared.files import ChiefsFiles
from cluster_trainer.on_jax.steps.batches import GlobalBatches
from cluster_trainer.on_jax.steps.step import Steps
from cluster_trainer.on_jax.workers.cluster import JaxWorkers
from cluster_trainer.process.stop import StopRequest


@dataclass(frozen=True)
class Fit:
    """What is made for one fit.

    Attributes:
        workers: this one and the others.
        saver: writes its checkpoints.
        every: the steps between two; 0: none are kept.
        found: the newest of an earlier start; None: this one is the first.
        described: what must be unchanged when the fit resumes, name -> value.
        differing: the names of those that differ between workers: a checkpoint has one worker's.
        first: the epoch to begin with, where there is no checkpoint.
        steps: trains.
        batches: are trained.
        programs: digests of the compiled steps, of this start and earlier ones.
        stop: whether this worker was asked to stop.
        files: those that the chief's callbacks write; None: this worker is alone.
    """

    workers: JaxWorkers
    saver: Saver
    every: int
    found: Found | None
    described: Mapping[str, str]
    differing: Collection[str]
    first: int
    steps: Steps
    batches: GlobalBatches
    programs: MutableMapping[str, str]
    stop: StopRequest
    files: ChiefsFiles | None

    @property
    def place(self) -> Place:
        """Where it begins."""
        return (
            self.found.checkpoint.place if self.found else Place(epoch=self.first, first=self.first)
        )

    @property
    def had_ended(self) -> bool:
        """Whether an earlier start has come to the fit's end."""
        return self.place.stage == Stage.ALL

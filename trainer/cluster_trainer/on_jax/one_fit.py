"""The parts of one fit, and the place at which it begins."""

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
    """The parts of one fit.

    Attributes:
        workers: the workers that train together.
        saver: writes its checkpoints.
        every: the number of steps between two checkpoints; 0: none are saved.
        found: the newest checkpoint of any worker; None: there is none.
        described: the facts that must be unchanged when the fit resumes: name -> value.
        differing: the names of facts that differ between workers. They are not compared with a
            checkpoint, which has one worker's values.
        first: the epoch to begin with if there is no checkpoint.
        steps: the train function.
        batches: the global batches.
        programs: digests of the compiled steps, of this start and earlier ones.
        stop: tells whether this worker was asked to stop.
        files: copies the files that callbacks write on the chief; None: this worker is alone.
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
        """The place at which the fit begins."""
        return (
            self.found.checkpoint.place if self.found else Place(epoch=self.first, first=self.first)
        )

    @property
    def had_ended(self) -> bool:
        """Whether the fit has ended in an earlier start."""
        return self.place.stage == Stage.ALL

"""The options of one saved fit, which its program chooses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from cluster_trainer.fits.kept.ended_fits import EndedFits
from cluster_trainer.process.network_limit import NetworkLimit
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.on_screen.progress import Progress
from cluster_trainer.settings.job import Job

if TYPE_CHECKING:
    from cluster_trainer.fits.kept.kept_fit import KeptFit


@dataclass(frozen=True)
class FitOptions:
    """How a fit is saved.

    Attributes:
        job: the settings, and this worker's task.
        stop: tells whether this process was asked to stop.
        deadline: the time by which a call of TensorFlow must be over.
        folder: the folder with the fit's checkpoints.
        described: all facts that must be unchanged when the fit resumes: name -> value.
        ended: the finished fits of the process.
        network: notes how long the workers waited for sums, for all fits of the process.
        compares_layers: whether the layers must be unchanged, too.
        describes_data: whether `described` includes the division of the data into batches.
        begins: is called before training, once the checkpoint is known to belong to this fit.
        had_ended: is called before the results of a finished fit are returned for this call.
        goes_on: is called before an interrupted fit resumes.
        name: the fit's name in the log; empty if the program has only one.
        must_resume: whether there has to be a checkpoint.
        has_trained: whether this process has already trained the model. Then it cannot begin at
            step 0.
        interrupts: whether Ctrl-C raises KeyboardInterrupt, as a script may expect.
        cuts: the steps at which a call of TensorFlow has to end, the same on all workers.
        tell: gets the fit's progress.
        examples_at: a function from a step to the number of training examples seen until then;
            None: unknown.
        found: is called once the step at which the fit begins is known.
        records: returns the callbacks that record the fit, once its data are known; None: nothing
            is recorded.
        must_record: whether the fit is recorded even without checkpoints, and fails if its metrics
            cannot be recorded.
        may_take_in: whether the fit may be interrupted to let a worker rejoin.
        rehearses: whether the fit ends after one step, without a trace on disk.
    """

    job: Job
    stop: StopRequest
    deadline: Deadline
    folder: Path
    described: Mapping[str, str]
    ended: EndedFits = field(default_factory=EndedFits)
    network: NetworkLimit = field(default_factory=NetworkLimit)
    compares_layers: bool = True
    describes_data: bool = False
    begins: Callable[[], object] = lambda: None
    had_ended: Callable[[], object] = lambda: None
    goes_on: Callable[[], object] = lambda: None
    name: str = ""
    must_resume: bool = False
    has_trained: bool = False
    interrupts: bool = False
    cuts: Sequence[int] = ()
    tell: Callable[[Progress], object] = lambda _: None
    examples_at: Callable[[int], int] | None = None
    found: "Callable[[KeptFit], object]" = lambda _: None
    records: "Callable[[KeptFit], Sequence[keras.callbacks.Callback]] | None" = None
    must_record: bool = False
    may_take_in: bool = False
    rehearses: bool = False

    @property
    def prefix(self) -> str:
        """The beginning of log lines about the fit."""
        return f"{self.name}: " if self.name else ""

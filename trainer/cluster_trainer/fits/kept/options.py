"""The options of one saved fit, which its program decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from cluster_trainer.fits.kept.ended import EndedFits
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
        job: the settings, and which worker this is.
        stop: whether this process was asked to stop.
        deadline: until when a call of TensorFlow must be over.
        folder: the one that holds its checkpoints.
        described: all that must be unchanged when the fit resumes, name -> value.
        ended: the process's fits that have ended.
        network: notes how long the workers waited for sums, for all fits of the process.
        compares_layers: whether the layers must be as they were, too.
        describes_data: whether `described` tells how the data are cut, too.
        begins: called once the fit is known to be the one that is kept there, before it trains.
        had_ended: called before the results of a fit that had ended are given for this one's.
        goes_on: called before an interrupted fit resumes.
        name: its name in the log; empty if there is only one.
        must_resume: whether a checkpoint has to be there.
        has_trained: whether this process has trained the model already: no start at step 0 then.
        interrupts: whether Ctrl-C raises KeyboardInterrupt, as a script may expect.
        cuts: steps at which a call of TensorFlow has to end, the same on all workers.
        tell: gets the fit's progress.
        examples_at: from a step to the training examples seen until then; None: unknown.
        found: called once it is known where the fit begins.
        records: returns what records the fit, once its data are known; None: nothing is recorded.
        must_record: whether the fit is recorded without checkpoints too, and fails if its metrics
            cannot be recorded.
        may_take_in: whether the fit may be interrupted to let a worker rejoin.
        rehearses: whether the fit ends after its first call, without a trace on disk.
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
        """The beginning of the log's lines about it."""
        return f"{self.name}: " if self.name else ""

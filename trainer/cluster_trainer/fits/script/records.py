"""The records of each `fit` of a script besides its checkpoints, without changes to the script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras

from cluster_trainer.callbacks.recording.epoch_metrics import Line
from cluster_trainer.callbacks.recording.records import About
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.records import Records, callbacks_of
from cluster_trainer.fits.script.about import about
from cluster_trainer.fits.start_text import start_of_fit
from cluster_trainer.results.about_file import AboutFile
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.metrics_file import MetricsFile
from cluster_trainer.settings.job import Job

MOST_SHOWN = 100
"""The number of fits of a script that get event files and about.json; nobody reads thousands."""


@dataclass(frozen=True)
class ScriptRecords:
    """The records of one fit of a script.

    Attributes:
        job: the settings, and this worker's task.
        number: the fit's number, from 0.
        journal: the worker's own journal, of all fits.
        model: the model to train.
        script: the name of the script's file.
        is_first: whether no fit of this process has been recorded before.
        asked: the fit's parameters; see `asked_of`.
    """

    job: Job
    number: int
    journal: Journal
    model: keras.Model
    script: str
    is_first: bool
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the fit and of its folder."""
        return f"fit-{self.number + 1}"

    def made(self, kept: KeptFit) -> Sequence[keras.callbacks.Callback]:
        """Return the callbacks that record the fit, once its data are known."""
        folder, is_chief = self.job.folder / self.name, self.job.task.is_chief
        file, about_file = MetricsFile(folder), AboutFile(folder)
        if is_chief and not kept.step:
            for one in (file, about_file):
                one.remove()  # of a start that was killed before its first checkpoint
        shows = self.number < MOST_SHOWN
        data = kept.data_described if is_chief and shows else {}
        records = Records(
            job=self.job,
            folder=folder,
            book=self.journal.of_fit(self.name),
            report=partial(_report, file) if is_chief else _keep_still,
            start=partial(self._start, kept, data),
            examples_at=kept.examples_at,
            is_told=True,
            shows=shows,
            profiles=is_profiled(self.number),
        )
        tell = partial(about, self.job, self.model, self.asked, data)
        told = [About(about_file, tell)] if is_chief and shows else []
        return [*callbacks_of(records, self.model, kept), *told]

    def _start(self, kept: KeptFit, data: Mapping[str, str]) -> str:
        what = {"script": self.script, "fit": self.number + 1, **data}
        return start_of_fit(self.job, self.model, kept.beginning, what, is_first=self.is_first)


def is_profiled(number: int) -> bool:
    """Tell whether TRAINER_PROFILE_STEPS applies to the fit with this number: only the first."""
    return number == 0


def _report(file: MetricsFile, lines: list[Line], is_new: bool) -> None:  # noqa: FBT001
    del is_new
    if lines:
        file.note(lines)
    else:
        file.remove()


def _keep_still(lines: list[Line], is_new: bool) -> None:  # noqa: FBT001
    """Write nothing, because the chief writes the metrics."""

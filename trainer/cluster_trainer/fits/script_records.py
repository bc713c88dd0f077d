"""What each `fit` of a script leaves beside its checkpoints, without a word in the script."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import keras

from cluster_trainer.callbacks.epoch_metrics import Line
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.records import Records, metrics_of, others_of
from cluster_trainer.fits.start_text import start_of_fit
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.metrics_file import MetricsFile
from cluster_trainer.settings.job import Job

MOST_SHOWN = 100
"""Fits of a script that have event files: thousands would be no curves that anybody looks at."""


@dataclass(frozen=True)
class ScriptRecords:
    """How one fit of a script is recorded.

    Attributes:
        job: the settings, and which worker this is.
        number: of the fit, from 0.
        journal: the worker's own, of all fits.
        model: what is trained.
        script: its file's name.
        is_first: whether no fit of this process has been recorded before.
    """

    job: Job
    number: int
    journal: Journal
    model: keras.Model
    script: str
    is_first: bool

    @property
    def name(self) -> str:
        """The fit's, and its folder's."""
        return f"fit-{self.number + 1}"

    def made(self, kept: KeptFit) -> Sequence[keras.callbacks.Callback]:
        """Return what records the fit; its data are known by now."""
        folder = self.job.folder / self.name
        file = MetricsFile(folder)
        if self.job.task.is_chief and not kept.step:
            file.remove()  # of a start that was killed before its first checkpoint
        records = Records(
            job=self.job,
            folder=folder,
            book=self.journal.of_fit(self.name),
            report=partial(_report, file) if self.job.task.is_chief else _keep_still,
            start=partial(self._start, kept),
            examples_at=kept.examples_at,
            is_told=True,
            shows=self.number < MOST_SHOWN,
            profiles=is_profiled(self.number),
        )
        return [metrics_of(records, kept), *others_of(records, self.model, kept)]

    def _start(self, kept: KeptFit) -> str:
        what = {"script": self.script, "fit": self.number + 1, **kept.data_described}
        return start_of_fit(self.job, self.model, kept.beginning, what, is_first=self.is_first)


def is_profiled(number: int) -> bool:
    """Tell whether TRAINER_PROFILE_STEPS means the fit of this number: the script's first."""
    return number == 0


def _report(file: MetricsFile, lines: list[Line], is_new: bool) -> None:  # noqa: FBT001
    del is_new
    if lines:
        file.note(lines)
    else:
        file.remove()


def _keep_still(lines: list[Line], is_new: bool) -> None:  # noqa: FBT001
    """Leave it to the chief."""

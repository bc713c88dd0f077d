"""Makes the records of a fit for people: of the built-in trainer's fits, and of a script's.

The records are the metrics of its epochs, curves for TensorBoard, a profile, and its activities in
the journal. The chief writes the values that are the same on all workers. Each worker writes its
own speed and journal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras

from cluster_trainer.callbacks.profile import Profile
from cluster_trainer.callbacks.recording.epoch_metrics import EpochMetrics, Line
from cluster_trainer.callbacks.recording.tensorboard import FOLDER, Shown, TensorBoard
from cluster_trainer.callbacks.recording.timeline import Book, Timeline
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.settings.job import Job


@dataclass(frozen=True)
class Records:
    """The place and the kinds of a fit's records, which its program chooses.

    Attributes:
        job: the settings, and this worker's task.
        folder: the fit's own folder; TensorBoard's files are in a folder within it.
        book: gets the fit's activities.
        report: is called with the lines of its epochs; see EpochMetrics.
        start: returns TensorBoard's text about this start.
        examples_at: a function from a step to the number of training examples seen until then;
            None: unknown.
        test_examples: the number of test examples; None: unknown, or none.
        is_told: whether the fit's beginning and end are noted in the book, too; see Timeline.
        shows: whether to write event files, unless the settings forbid them.
        profiles: whether to profile the steps that the settings name, on the chief.
    """

    job: Job
    folder: Path
    book: Book
    report: Callable[[list[Line], bool], None]
    start: Callable[[], str]
    examples_at: Callable[[int], int] | None = None
    test_examples: int | None = None
    is_told: bool = False
    shows: bool = True
    profiles: bool = True


def callbacks_of(
    records: Records, model: keras.Model, kept: KeptFit
) -> list[keras.callbacks.Callback]:
    """Return the callbacks that record a fit; the callback with a state comes first."""
    metrics = EpochMetrics(
        place=lambda: kept.place,
        examples_at=records.examples_at,
        test_examples=records.test_examples,
        report=records.report,
    )
    start = (lambda: kept.beginning) if records.is_told else None
    timeline = Timeline(
        records.book,
        lambda: kept.place,
        kept.seconds_held_up,
        start,
        network=lambda: kept.network.reason,
    )
    return [metrics, timeline, *_boards(records, model, kept), *_profiles(records, kept)]


def _boards(records: Records, model: keras.Model, kept: KeptFit) -> list[TensorBoard]:
    job = records.job
    if job.config.tensorboard == "none" or not records.shows:
        return []
    shown = Shown(
        place=lambda: kept.place,
        checkpoints=kept.checkpoint_seconds,
        examples_at=records.examples_at,
        start=records.start,
        num_workers=workers_of(model.distribute_strategy).count,
        is_chief=job.task.is_chief,
        histograms=job.config.tensorboard == "histograms",
        at_work=lambda: kept.stragglers.busy,
        slow=lambda: f"{job.task.name} {kept.stragglers.reason}" if kept.stragglers.reason else "",
        network=lambda: kept.network.reason,
    )
    return [TensorBoard(records.folder / FOLDER, shown)]


def _profiles(records: Records, kept: KeptFit) -> list[Profile]:
    first, last = records.job.config.profiled
    if not (first and records.profiles and records.job.task.is_chief):
        return []
    return [Profile(records.folder / FOLDER, first, last, lambda: kept.place)]

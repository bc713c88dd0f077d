"""What TensorBoard is shown of a run of the trainer."""

from datetime import UTC, datetime

import keras

from cluster_trainer.callbacks.profile import Profile
from cluster_trainer.callbacks.tensorboard import FOLDER, Shown, TensorBoard
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.data.plan import Plan
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.results import journal, record
from cluster_trainer.results.happened import happenings
from cluster_trainer.settings.config import variable_of
from cluster_trainer.settings.job import Job


def boards_of(job: Job, plan: Plan, model: keras.Model, kept: KeptFit) -> list[TensorBoard]:
    """Return what writes a run's event files; nothing where none are wanted."""
    if job.config.tensorboard == "none":
        return []
    shown = Shown(
        place=lambda: kept.place,
        checkpoints=kept.checkpoint_seconds,
        examples_at=plan.examples_at if plan.counts_examples else None,
        start=lambda: start_of(job, model, kept.beginning),
        num_workers=workers_of(model.distribute_strategy).count,
        is_chief=job.task.is_chief,
        histograms=job.config.tensorboard == "histograms",
        at_work=lambda: kept.pace.busy,
        slow=lambda: f"{job.task.name} {kept.pace.reason}" if kept.pace.reason else "",
    )
    return [TensorBoard(job.folder / FOLDER, shown)]


def profiles_of(job: Job, kept: KeptFit) -> list[Profile]:
    """Return what profiles the steps that the settings name, on the chief."""
    first, last = job.config.profiled
    if not first or not job.task.is_chief:
        return []
    return [Profile(job.folder / FOLDER, first, last, lambda: kept.place)]


def start_of(job: Job, model: keras.Model, beginning: str) -> str:
    """Return as Markdown when, why and where a run was started, and with what."""
    again = ", again, since the command had crashed or lost a peer" if job.is_restart else ""
    sentence = f"Started on {datetime.now(UTC):%Y-%m-%d at %H:%M:%S} UTC{again}; {beginning}."
    used = record.of(model)
    facts = {
        "workers": job.task.num_workers,
        "replicas": used["replicas"],
        "strategy": used["strategy"],
        "optimizer": used["optimizer"]["class_name"],
        "loss": used["loss"],
    }
    settings = {variable_of(name): value for name, value in job.config.as_json().items()}
    rows = [f"| {name} | {_cell(value)} |" for name, value in (facts | settings).items()]
    parts = [sentence, *_before(job), "", "| what | value |", "| --- | --- |", *rows]
    return "\n".join(parts)


def _before(job: Job) -> list[str]:
    """Return as a table what this worker has been through since it trained last."""
    rows = [
        f"| {datetime.fromtimestamp(one.time, UTC):%H:%M:%S} | {one.what} | {_cell(one.detail)} |"
        for one in happenings(journal.read(job.folder / journal.FILE))
    ]
    return (
        ["", "| before it (UTC) | what | for whom, or why |", "| --- | --- | --- |", *rows]
        if rows
        else []
    )


def _cell(value: object) -> str:
    """Return a value as a cell of a table shows it."""
    text = "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
    return f"`{text}`" if text else ""

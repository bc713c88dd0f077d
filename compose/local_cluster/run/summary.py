"""Prints the summary of a run at its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from local_cluster.messages import EXIT_CONFIGURATION, say, write
from local_cluster.run import checkpoints
from local_cluster.run.checkpoints import CheckpointFile
from local_cluster.settings.settings import Settings
from local_cluster.shared_folder import SharedFolder

CURVES = "`make tensorboard` shows the curves of all runs"
METRICS, TENSORBOARD = "metrics.jsonl", "tensorboard"
WHERE_IT_RUNS = "worker-0/workspace"
MOST_MODELS = 3
"""The maximum number of models to list: a ModelCheckpoint may save one per epoch."""
TOLD_TO_STOP = (129, 130, 143)


def report(settings: Settings, code: int, seconds: int) -> None:
    """Print the end of a run, its last metrics, and the paths of its results."""
    folder = settings.folder
    write(sys.stdout, b"\n")
    if code:
        say(how_to_go_on(code, checkpoints.newest(folder, settings.workers)))
    else:
        chief = folder.below("worker-0")
        fit = newest_fit(chief) if settings.script else None
        last = list(last_epoch(chief.below(fit) if fit else chief))
        of_fit = f" of {fit.replace('-', ' ')}" if fit else ""
        of_last = f"; the last epoch{of_fit}:" if last else ""
        say(f"done: {settings.workers} worker(s), {seconds} s{of_last}")
        print_table(last)
    print_table(places(settings, is_done=not code))


def places(settings: Settings, *, is_done: bool) -> Iterator[tuple[str, str]]:
    """Yield the names and paths of the results."""
    folder = settings.folder.path
    chief = settings.folder.below("worker-0")
    if settings.script:
        yield "results", f"{folder}"
        for model in models_of(settings.folder)[-MOST_MODELS:]:
            yield "model", f"{folder}/{model}"
        if newest_fit(chief):
            yield "metrics", f"{chief.path}/fit-<n>/{METRICS}"
        if any(chief.below(fit).has_folder(TENSORBOARD) for fit in fits_of(chief)):
            yield "curves", CURVES
        yield "logs", f"{folder}/worker-<i>/container.log"
        return
    if is_done:
        yield "model", f"{folder}/worker-0/model.keras and saved_model/"
    yield "metrics", f"{folder}/worker-<i>/metrics.jsonl, result.json"
    if chief.has_folder(TENSORBOARD):
        yield "curves", CURVES
    yield "logs", f"{folder}/worker-<i>/train.log, container.log"


def how_to_go_on(code: int, checkpoint: CheckpointFile | None) -> str:
    """Return a sentence about a run that is not done, with the command that resumes it."""
    if code == EXIT_CONFIGURATION:
        return f"failed with exit code {code}"
    if checkpoint:
        how = f"`make resume` resumes from {checkpoint.place}"
    else:
        how = "`make resume` begins at step 0, because there is no checkpoint yet"
    if code in TOLD_TO_STOP:
        return f"stopped; {how}"
    return f"failed with exit code {code}" + (f"; {how}" if checkpoint else "")


def fits_of(chief: SharedFolder) -> list[str]:
    """Return the folders of a script's fits, in order."""
    return sorted(filter(checkpoints.fit_of, chief.names()), key=checkpoints.fit_of)


def newest_fit(chief: SharedFolder) -> str | None:
    """Return the folder of the last fit for which the chief has recorded metrics."""
    found = [fit for fit in fits_of(chief) if chief.below(fit).has_file(METRICS)]
    return found[-1] if found else None


def models_of(folder: SharedFolder) -> list[str]:
    """Return the models that a script has saved in the run's folder, the newest last.

    They include those in the chief's working directory, but not links to your own models.
    """
    found = [
        (folder.below(place).time_of(name), str(PurePosixPath(place, name)))
        for place in ("", WHERE_IT_RUNS)
        for name in folder.below(place).names()
        if name.endswith(".keras") and not name.startswith(".")
        if folder.below(place).has_file(name)
    ]
    return [name for _, name in sorted(found)]


def last_epoch(folder: SharedFolder) -> Iterator[tuple[str, str]]:
    """Yield the fields of the last line of metrics.jsonl; fractions have four digits."""
    try:
        lines = folder.read_end(METRICS).decode().splitlines()
        metrics = json.loads(lines[-1], parse_float=lambda text: f"{float(text):.4f}")
        yield from ((name, str(value)) for name, value in metrics.items())
    except (OSError, ValueError, IndexError, AttributeError, RecursionError):
        return  # a command other than the trainer may write none


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Print rows in two columns."""
    for name, text in rows:
        write(sys.stdout, f"  {name:<20} {text}\n".encode(errors="surrogateescape"))

"""What is said of a run when it is over."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, say, write
from local_cluster.run import checkpoints
from local_cluster.settings.settings import Settings

CURVES = "`make tensorboard` shows those of all runs"
METRICS = "metrics.jsonl"
MOST_MODELS = 3
"""That are named: a ModelCheckpoint may have saved one each epoch."""
TOLD_TO_STOP = (129, 130, 143)


def report(settings: Settings, code: int, seconds: int) -> None:
    """Print how a run ended, its last metrics, and where everything is."""
    folder = settings.folder
    write(sys.stdout, b"\n")
    if code:
        say(how_to_go_on(code, checkpoints.newest(folder, settings.workers)))
    else:
        fit = newest_fit(folder / "worker-0") if settings.script else None
        last = list(last_epoch((fit or folder / "worker-0") / METRICS))
        of_fit = f" of {fit.name.replace('-', ' ')}" if fit else ""
        of_last = f"; the last epoch{of_fit}:" if last else ""
        say(f"done: {settings.workers} worker(s), {seconds} s{of_last}")
        print_table(last)
    print_table(places(settings, is_done=not code))


def places(settings: Settings, *, is_done: bool) -> Iterator[tuple[str, str]]:
    """Yield where everything is, by names; a script's results are whatever it has written."""
    folder = settings.folder
    if settings.script:
        yield "results", f"{folder}"
        chief = folder / "worker-0"
        for model in models_of(folder)[-MOST_MODELS:]:
            yield "model", f"{model}"
        if newest_fit(chief):
            yield "metrics", f"{chief}/fit-<n>/{METRICS}"
        if any(chief.glob("fit-*/tensorboard")):
            yield "curves", CURVES
        yield "logs", f"{folder}/worker-<i>/container.log"
        return
    if is_done:
        yield "model", f"{folder}/worker-0/model.keras and saved_model/"
    yield "metrics", f"{folder}/worker-<i>/metrics.jsonl, result.json"
    if (folder / "worker-0/tensorboard").is_dir():
        yield "curves", CURVES
    yield "logs", f"{folder}/worker-<i>/train.log, container.log"


def how_to_go_on(code: int, checkpoint: Path | None) -> str:
    """Return the sentence about a run that is not done."""
    if code == EXIT_CONFIGURATION:
        return f"failed with exit code {code}"
    if checkpoint:
        how = f"`make resume` goes on from {checkpoints.place_of(checkpoint)}"
    else:
        how = "`make resume` begins at step 0: there is no checkpoint yet"
    if code in TOLD_TO_STOP:
        return f"stopped; {how}"
    return f"failed with exit code {code}" + (f"; {how}" if checkpoint else "")


def newest_fit(chief: Path) -> Path | None:
    """Return the folder of the last fit that a script's chief has numbers of."""
    fits = [file.parent for file in chief.glob(f"*/{METRICS}") if checkpoints.fit_of(file.parent)]
    return max(fits, key=checkpoints.fit_of, default=None)


def models_of(folder: Path) -> list[Path]:
    """Return the models that a script has saved in a run's folder, the newest last."""
    # A script's link may lead to where only its container has something.
    files = [file for file in folder.glob("*.keras") if file.exists()]
    found = [file for file in files if not file.name.startswith(".")]
    return sorted(found, key=lambda file: file.stat().st_mtime)


def last_epoch(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the last line of metrics.jsonl, a flat object, by names; fractions to four digits."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        metrics = json.loads(lines[-1], parse_float=lambda text: f"{float(text):.4f}")
        yield from ((name, str(value)) for name, value in metrics.items())
    except (OSError, ValueError, IndexError, AttributeError):
        return  # a command that is not the trainer writes none


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and what they stand for, in two columns."""
    for name, text in rows:
        write(sys.stdout, f"  {name:<20} {text}\n".encode(errors="surrogateescape"))

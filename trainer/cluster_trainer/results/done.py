"""DONE: the mark of a finished run, with which a later start ends at once."""

import json
import logging
from typing import Any

from cluster_trainer.files import write_whole
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.groups import OWN
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.names.spellings import variable_of

FILE = "DONE"
log = logging.getLogger("trainer")


def mark(job: Job, steps: int) -> None:
    """Write the mark, completely or not at all; call this when all results are on the disk."""
    document = {
        "steps": steps,
        "epochs": job.config.epochs,
        "settings": job.config.run_settings(),
    }
    text = json.dumps(document, indent=2) + "\n"
    try:
        write_whole(job.folder / FILE, text.encode(), durable=True)
    except OSError as error:
        log.warning("the run is done, but %s could not be written: %s", FILE, error)


def sentence_if_done(job: Job) -> str:
    """Return a sentence if this worker's run is done, and has all requested epochs; else "".

    Raises:
        ConfigurationError: the finished run had other settings.
    """
    document = _read(job)
    if document is None or job.config.resume == "never":
        return ""
    _refuse_other_settings(job, document["settings"])
    if document["epochs"] < job.config.epochs:
        return ""
    return (
        f"this run is done ({document['epochs']} epochs, {document['steps']} steps); results in "
        f"{job.folder}. For another run, set another TRAINER_RUN_DIR. To train this one again, "
        "set TRAINER_RESUME=never."
    )


def _read(job: Job) -> dict[str, Any] | None:
    """Return the content of the mark; None: there is no readable mark."""
    try:
        document = json.loads((job.folder / FILE).read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _refuse_other_settings(job: Job, done: dict[str, str]) -> None:
    # A compiled model had its own parameters, marked as OWN. They are not known yet, so they are
    # not compared. The mark has the epochs only if the learning rate depends on them.
    mine = {variable_of(name): str(value) for name, value in job.config.as_json().items()}
    advice = "Use that value, another TRAINER_RUN_DIR, or TRAINER_RESUME=never to start over."
    problems = [
        Problem(name, mine.get(name, ""), f"{was}, as {job.folder} has it", advice)
        for name, was in sorted(done.items())
        if was not in (mine.get(name), OWN)
    ]
    if problems:
        raise ConfigurationError(problems)

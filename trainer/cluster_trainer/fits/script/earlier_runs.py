"""Moves aside or refuses the fits of an earlier script when a script's fits start over."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_trainer.fits.identity import end_mark, moved_aside, owner, renumbered
from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.fits.identity.owner import Owner, script_name, this_process
from cluster_trainer.fits.identity.saved_fits import ANEW
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.results.journal import FILE as EVENTS
from cluster_trainer.settings.job import Job

if TYPE_CHECKING:  # it imports TensorFlow, which nothing here needs
    from cluster_trainer.collectives.workers import Workers

log = logging.getLogger("trainer")


def begin_anew(
    job: Job,
    workers: "Workers",
    beginning: Leftovers,
    before: Owner | None,
    environ: Mapping[str, str],
) -> None:
    """Move aside the files of an earlier run that has ended, or that TRAINER_RESUME excludes.

    All workers call this.

    Args:
        job: the settings, and this worker's task.
        workers: the workers that train together.
        beginning: tells whether an earlier run's files still have to be moved aside.
        before: the folder's earlier owner; None: none is known.
        environ: the environment, which identifies this start.

    Raises:
        ConfigurationError: another script has left fits that have not ended.
    """
    keeps = bool(job.config.checkpoint_steps)
    if keeps:
        moved_aside.finish(job.folder)
    may_take = keeps and not beginning.is_over and job.config.resume != "never"
    if taken := renumbered.take_over(job, workers, _names_in, may_take=may_take):
        before = owner.read(taken)
        mine = this_process(environ, script_name())
        owner.write(job.folder, replace(mine, began=before.began) if before else mine)
    is_new = before is None and not any(job.folder.glob("fit-*"))
    has_ended = end_mark.has_ended(job.folder, workers, is_new=is_new)
    if keeps and not beginning.is_over:
        if has_ended or job.config.resume == "never":
            _move_aside(job, before, environ, has_ended=has_ended)
        elif before and before.script != script_name():
            _refuse_other_script(job, before)
        beginning.end()
    end_mark.forget(job.folder, workers, keeps=keeps)


def _names_in(folder: Path) -> list[str]:
    """Return the names of this script's fits in a worker's folder, and of the mark of its end."""
    there = owner.read(folder)
    if there and there.script != script_name():
        return []
    return [one.name for pattern in ("fit-*", end_mark.FILE) for one in folder.glob(pattern)]


def _move_aside(
    job: Job, before: Owner | None, environ: Mapping[str, str], *, has_ended: bool
) -> None:
    script = before.script if before else "a script"
    began = before.began if before else job.folder.stat().st_mtime
    fits = [one.name for one in job.folder.glob("fit-*")]
    place = moved_aside.move_aside(job.folder, [*fits, EVENTS], script, began)
    if place is None:
        return
    why = "has ended with this TRAINER_RUN_DIR" if has_ended else "is not resumed"
    log.info("%s %s: the fits that it left in %s are now in %s", script, why, job.folder, place)
    owner.write(job.folder, this_process(environ, script_name()))
    moved_aside.keep_newest(job.folder, job.config.keep_earlier)


def _refuse_other_script(job: Job, before: Owner) -> None:
    """Refuse to train where another script was interrupted, which may still resume there."""
    if any(job.folder.glob("fit-*")):
        owner.write(job.folder, before)
        accepted = f"{before.script}, whose fits in {job.folder} have not ended"
        raise ConfigurationError([Problem("the script", script_name(), accepted, ANEW)])

"""`resume`: a run goes on where it stopped, or one stopped worker of the cluster that runs.

A run goes on with what it was started with; what is given now wins. Its global batch stays the same
with another number of workers.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from local_cluster import compose, engine
from local_cluster.commands.stop import chosen
from local_cluster.commands.up import up
from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from local_cluster.run import checkpoints
from local_cluster.settings import remembered
from local_cluster.settings.given import LATEST, RUN_NAME, project, runs_folder
from local_cluster.settings.names import MAX_WORKERS
from local_cluster.settings.remembered import RunRecord
from local_cluster.settings.settings import read
from local_cluster.shared_folder import SharedFolder

GLOBAL_BATCH = "TRAINER_GLOBAL_BATCH_SIZE"
BATCH = "TRAINER_PER_REPLICA_BATCH_SIZE"


def resume(environ: Mapping[str, str], shell: Mapping[str, str], worker: str = "") -> int:
    """Go on with a run to its end, or start one worker again; return the exit code.

    Args:
        environ: all variables, with those of .env.
        shell: those that are really set, and so win over what the run was started with.
        worker: the number of the one worker, or "".

    Raises:
        EndError: there is no such run, or no such worker.
    """
    if worker:
        _start_again(engine.Project(project(environ)), worker)
        return 0
    runs = runs_folder(environ)
    name = _name_of_run(runs, environ.get("RUN_NAME", ""))
    given = {variable: text for variable, text in shell.items() if text}
    record = remembered.record_of(runs, name, environ)
    was = _was(record, name, environ, given)
    _refuse(record, was, environ)
    kept = keep_global_batch(record.folder, was, given)
    return up({**environ, **kept, **given, "RUN_NAME": name})


def _start_again(cluster: engine.Project, worker: str) -> None:
    ended = cluster.workers("--filter", "status=exited")
    if not ended:
        raise EndError(
            EXIT_CONFIGURATION,
            f'WORKER: received "{worker}", and no cluster here has a worker that ended; '
            "`make resume` without it goes on with a run.",
        )
    one = chosen(worker, ended, "the number of one that ended")
    engine.output_of("start", one.container)
    say(f"{one.service} is started again")


def _name_of_run(runs: Path, name: str) -> str:
    """Return the run's name: the newest one's, unless another is given."""
    if name in ("", LATEST):
        try:
            name = SharedFolder(runs).target_of(LATEST)
        except OSError:
            nothing = f"there is no run to resume in {runs}; `make up-local` starts one."
            raise EndError(EXIT_CONFIGURATION, nothing) from None
    if not RUN_NAME.fullmatch(name) or not SharedFolder(runs).has_folder(name):
        accepted = f"a run that `make up-local` started (there is no folder of this name in {runs})"
        raise EndError(EXIT_CONFIGURATION, f'RUN_NAME: received "{name}"; accepted: {accepted}.')
    return name


def _was(
    record: RunRecord, name: str, environ: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return what a run was started with.

    Of a run that is known by its folder alone, what decides about this machine has to be what it
    would be anyway, or has to be given now: the workers can write that folder.
    """
    if kept := record.text():
        return remembered.parse(kept)
    was = remembered.parse(record.copy())
    if not was:
        file = record.folder.path / remembered.FILE
        accepted = f"a run that `make up-local` started (there is no {file})"
        raise EndError(EXIT_CONFIGURATION, f'RUN_NAME: received "{name}"; accepted: {accepted}.')
    now = {**environ, **compose.settled(read(environ, datetime.now()))}
    unsure = [
        one
        for one in remembered.OF_THE_MACHINE
        if was.get(one) and not given.get(one) and was[one] != now.get(one)
    ]
    if unsure:
        found = {one: was[one] for one in unsure}
        raise EndError(
            EXIT_CONFIGURATION, _not_trusted(found, record, _command(found, given, name))
        )
    return {one: text for one, text in was.items() if one not in remembered.OF_THE_MACHINE}


def _not_trusted(found: Mapping[str, str], record: RunRecord, command: str) -> str:
    """Return the sentences about settings that are only in a file that workers can write."""
    file = record.folder.path / remembered.FILE
    values = ", ".join(f"{one}={json.dumps(text)}" for one, text in found.items())
    return (
        f"{', '.join(found)}: {file} says {values}. Workers can write that file, and there is no "
        "other record of the run: another user started it, or it was moved. "
        f"Check the values, then give them: `{command}`."
    )


def _command(found: Mapping[str, str], given: Mapping[str, str], name: str) -> str:
    """Return the command that gives what was found, besides what was given already."""
    again = {one: text for one, text in given.items() if remembered.is_remembered(one)}
    place = {one: given[one] for one in ("RUNS_DIR", "COMPOSE_PROJECT_NAME") if one in given}
    chosen = {"NAME": name, **place, **again, **found}
    return " ".join(["make resume", *(f"{one}={_for_make(text)}" for one, text in chosen.items())])


def _for_make(text: str) -> str:
    """Return a value as a shell and make take it; "…" where a terminal could not show it."""
    return shlex.quote(text.replace("$", "$$")) if text.isprintable() else "…"


def _refuse(record: RunRecord, was: Mapping[str, str], environ: Mapping[str, str]) -> None:
    problems = []
    workers = was.get("WORKERS", "")
    if not re.fullmatch(f"[1-{MAX_WORKERS}]", workers):
        accepted = f"a number from 1 to {MAX_WORKERS}"
        file = record.kept if record.kept.exists() else record.folder.path / remembered.FILE
        problems.append(f'WORKERS in {file}: received "{workers}"; accepted: {accepted}.')
    if remembered.SECRET in was and not environ.get(remembered.SECRET):
        problems.append(
            f"{remembered.SECRET}: not set. The run was started with a token, which no file "
            "keeps. Set it again, or set a new one."
        )
    if problems:
        raise EndError(EXIT_CONFIGURATION, *problems)


def keep_global_batch(
    folder: SharedFolder, was: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return what the run was started with, with its global batch in place of each replica's.

    The examples for each replica depend on how many there are; all of them together may not change.
    """
    kept = {name: text for name, text in was.items() if name not in (GLOBAL_BATCH, BATCH)}
    if given.get(GLOBAL_BATCH) or given.get(BATCH):
        return kept
    newest = checkpoints.newest(folder, int(was["WORKERS"]))
    size = checkpoints.global_batch(newest) if newest else None
    # Empty, so that .env cannot give one for each replica beside it.
    return {**kept, GLOBAL_BATCH: size, BATCH: ""} if size else dict(was)

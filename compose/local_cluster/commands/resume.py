"""`resume`: resumes a run, or starts one stopped worker of the running cluster again.

A run resumes with the settings of its start; new settings replace them. Its global batch stays the
same if the number of workers changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from local_cluster import docker_engine
from local_cluster.commands.stop import chosen
from local_cluster.commands.up import up
from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from local_cluster.run import checkpoints
from local_cluster.settings import run_record
from local_cluster.settings.given_variables import LATEST, RUN_NAME, project, runs_folder
from local_cluster.settings.names import MAX_WORKERS
from local_cluster.settings.run_record import RunRecord
from local_cluster.shared_folder import SharedFolder
from machines import hosts_setting

GLOBAL_BATCH = "TRAINER_GLOBAL_BATCH_SIZE"
HOSTS = "HOSTS"
BATCH = "TRAINER_PER_REPLICA_BATCH_SIZE"


def resume(
    environ: Mapping[str, str],
    shell: Mapping[str, str],
    worker: str = "",
    start: Callable[[Mapping[str, str]], int] | None = None,
) -> int:
    """Run a stopped run to its end, or start one worker again; return the exit code.

    Args:
        environ: all variables, with those of .env.
        shell: the variables of the shell, which take precedence over the settings of the start.
        worker: the number of the one worker, or "".
        start: starts the cluster; None: `up`.

    Raises:
        EndError: there is no such run, or no such worker.
    """
    if worker:
        _start_again(docker_engine.Project(project(environ)), worker)
        return 0
    runs = runs_folder(environ)
    name = name_of_run(runs, environ.get("RUN_NAME", ""))
    given = {variable: text for variable, text in shell.items() if text}
    record = run_record.record_of(runs, name, environ)
    was = was_of(record, name)
    _refuse(record, was, environ, given)
    # HOSTS of .env is for `make up`; a run that was started here stays here.
    rest = environ if HOSTS in was else {**environ, HOSTS: ""}
    kept = was if HOSTS in was else keep_global_batch(record.folder, was, given)
    return (start or up)({**rest, **kept, **given, "RUN_NAME": name})


def _start_again(cluster: docker_engine.Project, worker: str) -> None:
    ended = cluster.workers("--filter", "status=exited")
    if not ended:
        raise EndError(
            EXIT_CONFIGURATION,
            f'WORKER: received "{worker}", but no cluster here has a stopped worker. '
            "`make resume` without WORKER resumes a run.",
        )
    one = chosen(worker, ended, "the number of a stopped worker")
    docker_engine.output_of("start", one.container)
    say(f"{one.service} is started again")


def name_of_run(runs: Path, name: str) -> str:
    """Return the given run's name, or that of the newest run if none is given."""
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


def was_of(record: RunRecord, name: str) -> dict[str, str]:
    """Return the settings with which a run was started, from its record.

    cluster.json does not replace a missing record, because workers can write that file.
    """
    if kept := record.text():
        return run_record.parse(kept)
    file = record.folder.path / run_record.FILE
    advice = f"there is no {file}"
    if record.copy():
        advice = (
            f"another user started it, or it was moved. Its settings are in {file}, which workers "
            f"can write: check that file, then pass its settings to `make up-local NAME={name}`"
        )
    accepted = "a run that your `make up-local` started"
    raise EndError(
        EXIT_CONFIGURATION, f'RUN_NAME: received "{name}"; accepted: {accepted}; {advice}.'
    )


def _refuse(
    record: RunRecord,
    was: Mapping[str, str],
    environ: Mapping[str, str],
    given: Mapping[str, str],
) -> None:
    problems = []
    workers = was.get("WORKERS", "")
    if was.get(HOSTS):
        problems += _other_machines(was[HOSTS], environ, given.get(HOSTS, ""))
    elif given.get(HOSTS):
        problems.append(f"{HOSTS}: the run was started on this machine; accepted: none.")
    elif not re.fullmatch(f"[1-{MAX_WORKERS}]", workers):
        accepted = f"a number from 1 to {MAX_WORKERS}"
        problems.append(f'WORKERS in {record.kept}: received "{workers}"; accepted: {accepted}.')
    if run_record.SECRET in was and not environ.get(run_record.SECRET):
        problems.append(
            f"{run_record.SECRET}: not set. The run was started with a token, which no file "
            "keeps. Set it again, or set a new one."
        )
    if problems:
        raise EndError(EXIT_CONFIGURATION, *problems)


def _other_machines(was: str, environ: Mapping[str, str], now: str) -> list[str]:
    """Return a sentence if the number of machines has changed and no batch size is given.

    With the old batch size per replica, the global batch size and so the model would change.
    """
    if not now or environ.get(GLOBAL_BATCH) or environ.get(BATCH):
        return []
    before, after = len(hosts_setting.read(was)), len(hosts_setting.read(now))
    if before == after:
        return []
    accepted = f"{before} machines, as before; or give GLOBAL_BATCH= as well"
    return [f"{HOSTS}: received {after} machines; accepted: {accepted}."]


def keep_global_batch(
    folder: SharedFolder, was: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of the start, with the global batch size instead of the one per replica.

    The size per replica depends on the number of replicas. The global size must not change.
    """
    kept = {name: text for name, text in was.items() if name not in (GLOBAL_BATCH, BATCH)}
    if given.get(GLOBAL_BATCH) or given.get(BATCH):
        return kept
    newest = checkpoints.newest(folder, int(was["WORKERS"]))
    size = checkpoints.global_batch(newest) if newest else None
    # Empty, so that .env cannot set a size per replica as well.
    return {**kept, GLOBAL_BATCH: size, BATCH: ""} if size else dict(was)

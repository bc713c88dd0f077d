"""`up`: runs a local cluster from start to end, and leaves no container and no network behind."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from local_cluster import compose, docker_engine
from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, complain
from local_cluster.process_identity import identity_of
from local_cluster.run import folder as folders
from local_cluster.run import live
from local_cluster.run.lines import ScreenOptions
from local_cluster.run.run import LocalRun
from local_cluster.run.summary import report
from local_cluster.settings import locks, run_record
from local_cluster.settings.run_record import RunRecord
from local_cluster.settings.settings import Settings, read
from local_cluster.shared_folder import SharedFolder, refusal

NO = ("", "no", "off", "false")


def up(environ: Mapping[str, str]) -> int:
    """Run a cluster to its end, and return its exit code.

    The code is 0 if all workers exit with 0. Otherwise it is the code of the worker that failed
    first, or the code of the signal that stopped this process or all workers.

    Raises:
        EndError: a setting is wrong, another start uses the project or the run, or the engine
            fails.
    """
    settings = read(environ, datetime.now())
    with ExitStack() as held:
        held.enter_context(locks.of_project(settings.project, settings.user, environ))
        refuse_engine(settings)
        docker_engine.refuse_other_users(settings.user)
        return _run(_with_folder(settings, environ, held), environ)


def _with_folder(settings: Settings, environ: Mapping[str, str], held: ExitStack) -> Settings:
    """Lock the run and make its folder; return the settings with the run's name.

    A new run gets its name when its folder is made, so no other start can use it yet.
    """
    is_new = not environ.get("RUN_NAME")
    if is_new:
        settings = make_folder(settings, is_new=True)
    held.enter_context(locks.of_run(settings.runs, settings.run_name, settings.user, environ))
    if not is_new:
        settings = make_folder(settings, is_new=False)
    try:
        docker_engine.refuse_elsewhere(settings.image, settings.folder.path)
    except EndError:
        settings.folder.remove_empty()
        raise
    point_to(settings)
    return settings


def _run(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run a cluster to its end, while its locks are held; return its exit code."""
    begin = time.monotonic()
    gpus = _gives_gpus(settings.image)
    chosen = compose.variables(
        settings, environ, processors=os.cpu_count() or 1, process=identity_of(os.getpid())
    )
    start = remember(settings, {**environ, **compose.settled(settings)}, environ)
    # Every worker prints everything. This process selects what the screen shows.
    chosen |= {"VERBOSE": "1", "LIVE_FILE": live.FILE}
    screen = ScreenOptions(shows_all=is_verbose(environ), draws=live.may_draw(environ))
    files = tuple(compose.files(settings, gpus=gpus))
    run = LocalRun(settings, compose.Compose(files, chosen), screen)
    code = run.to_the_end()
    if code == EXIT_CONFIGURATION:
        forget(settings, start)
    report(settings, code, int(time.monotonic() - begin))
    return code


def _gives_gpus(image: str) -> bool:
    """Tell whether the workers get GPUs; print a line if only the image is for GPUs."""
    if not docker_engine.is_for_gpus(image):
        return False
    if docker_engine.has_nvidia():
        return True
    complain(
        f"IMAGE: {image} is for GPUs, but Docker has no NVIDIA runtime here: the workers train on "
        "the CPU (docs/how-to/gpus.md)."
    )
    return False


def is_verbose(environ: Mapping[str, str]) -> bool:
    """Whether to show every line of every worker: VERBOSE is not 0, no, off or false."""
    return environ.get("VERBOSE", "").strip().lower().lstrip("0") not in NO


def refuse_engine(settings: Settings) -> None:
    """Make sure that the cluster can start.

    Raises:
        EndError: there is no image, or a cluster of the project is running.
    """
    docker_engine.refuse_missing(settings.image)
    project = docker_engine.Project(settings.project)
    if project.containers("--filter", "status=running", "--filter", "status=paused"):
        raise EndError(
            EXIT_ERROR,
            f"a cluster of the project {settings.project} is already running: `make ps` shows it, "
            "`make down` ends it.",
        )


@dataclass(frozen=True)
class StartRecord:
    """The record of a start, and what was there before.

    Attributes:
        record: where the record is.
        before: the previous record; empty: there was none.
        aside: the folder into which cluster.json was moved; None: it was not moved.
    """

    record: RunRecord
    before: bytes
    aside: SharedFolder | None


def make_folder(settings: Settings, *, is_new: bool) -> Settings:
    """Make the run's folder; return the settings with the run's final name.

    Raises:
        EndError: it cannot be made.
    """
    try:
        name = folders.make(settings.runs, settings.run_name, [], is_new=is_new)
    except OSError as error:
        raise refusal(settings.folder, error) from error
    return replace(settings, run_name=name)


def point_to(settings: Settings) -> None:
    """Make the run the newest one, which `resume` and others use.

    Raises:
        EndError: the folder of all runs cannot be written.
    """
    try:
        folders.point_to(settings.runs, settings.run_name, settings.project)
    except OSError as error:
        raise refusal(settings.folder, error) from error


def remember(
    settings: Settings, decided: Mapping[str, str], environ: Mapping[str, str]
) -> StartRecord:
    """Write the settings of the run's start, and make the workers' folders.

    Raises:
        EndError: they cannot be written.
    """
    record = run_record.record_of(settings.runs, settings.run_name, environ)
    before = record.text()
    try:
        was = run_record.parse(before or record.copy())
        aside = keep_earlier(settings, was, decided)
        folders.make(settings.runs, settings.run_name, settings.services, is_new=False)
        record.remember(decided, settings.user)
        if os.getuid() == 0:
            folders.hand_over(settings.runs, settings.run_name, settings.project, settings.user)
    except OSError as error:
        raise refusal(settings.folder, error) from error
    return StartRecord(record, before, aside)


def keep_earlier(
    settings: Settings, was: Mapping[str, str], decided: Mapping[str, str]
) -> SharedFolder | None:
    """Move aside files of the run's last start that this start would replace.

    These are cluster.json, if the settings differ, and the workers' logs, if the script differs.

    Raises:
        OSError: a file could not be moved.
    """
    folder = settings.folder
    if not was or was == run_record.decided(decided):
        return None
    script, now = was.get("SCRIPT", ""), decided.get("SCRIPT", "")
    logs = [f"{one}/{folders.LOG}" for one in folder.names() if one.startswith("worker-")]
    places = [run_record.FILE, *(logs if script != now else [])]
    what = Path(script).stem or was.get("TRAINER_MODEL", "trainer")
    name = folders.name_of_start(folder.time_of(run_record.FILE), what)
    return folders.move_aside(folder, places, name)


def forget(settings: Settings, start: StartRecord) -> None:
    """Restore the settings of the previous start, because the workers have refused the new ones."""
    try:
        if start.before or start.aside:
            start.record.forget(start.before, settings.user)
        if start.aside:
            start.aside.move(run_record.FILE, settings.folder)
            start.aside.remove_empty()
    except (OSError, EndError) as error:
        complain(f"the run's earlier settings could not be restored: {error}")

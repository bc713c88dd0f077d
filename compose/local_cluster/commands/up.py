"""`up`: a local cluster from start to end, which leaves no container and no network behind."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from local_cluster import compose, engine
from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, complain
from local_cluster.run import folder as folders
from local_cluster.run import live
from local_cluster.run.lines import ScreenOptions
from local_cluster.run.report import report
from local_cluster.run.run import LocalRun
from local_cluster.settings import locks, remembered
from local_cluster.settings.remembered import RunRecord
from local_cluster.settings.settings import Settings, read
from local_cluster.shared_folder import SharedFolder, refusal

NO = ("", "no", "off", "false")


def up(environ: Mapping[str, str]) -> int:
    """Run a cluster to its end, and return its exit code.

    0 when all workers end with 0; else that of the worker that failed first, or what says that this
    process, or all workers, were told to stop.

    Raises:
        EndError: there is a mistake in what was given, another start is at the project or the run,
            or the engine cannot do it.
    """
    settings = read(environ, datetime.now())
    with ExitStack() as held:
        held.enter_context(locks.of_project(settings.project, settings.user, environ))
        refuse_engine(settings)
        return _run(_with_folder(settings, environ, held), environ)


def _with_folder(settings: Settings, environ: Mapping[str, str], held: ExitStack) -> Settings:
    """Lock the run and make its folder; return the settings with the run's name.

    A new run finds its name when its folder is made; no other start is at it then.
    """
    is_new = not environ.get("RUN_NAME")
    if is_new:
        settings = make_folder(settings, is_new=True)
    held.enter_context(locks.of_run(settings.runs, settings.run_name, settings.user, environ))
    return settings if is_new else make_folder(settings, is_new=False)


def _run(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run a cluster whose locks are held to its end, and return its exit code."""
    begin = time.monotonic()
    nvidia = "gpu" in settings.image and engine.has_nvidia()
    chosen = compose.variables(
        settings, environ, processors=os.cpu_count() or 1, process=os.getpid()
    )
    start = remember(settings, {**environ, **compose.settled(settings)}, environ)
    # Every worker says all: it is for this process to leave something out, of the screen alone.
    chosen |= {"VERBOSE": "1", "LIVE_FILE": live.FILE}
    screen = ScreenOptions(shows_all=is_verbose(environ), draws=live.may_draw(environ))
    files = tuple(compose.files(settings, nvidia=nvidia))
    run = LocalRun(settings, compose.Compose(files, chosen), screen)
    code = run.to_the_end()
    if code == EXIT_CONFIGURATION:
        forget(settings, start)
    report(settings, code, int(time.monotonic() - begin))
    return code


def is_verbose(environ: Mapping[str, str]) -> bool:
    """Whether every line of every worker is to be shown: VERBOSE is not 0, no, off or false."""
    return environ.get("VERBOSE", "").strip().lower().lstrip("0") not in NO


def refuse_engine(settings: Settings) -> None:
    """Make sure that the engine can do it.

    Raises:
        EndError: there is no image, or a cluster of the project already.
    """
    engine.refuse_missing(settings.image)
    project = engine.Project(settings.project)
    if project.containers("--filter", "status=running", "--filter", "status=paused"):
        raise EndError(
            EXIT_ERROR,
            f"a cluster of the project {settings.project} runs already: `make ps` shows it, "
            "`make down` ends it.",
        )


@dataclass(frozen=True)
class StartRecord:
    """What a start has written down, and what was there before.

    Attributes:
        record: where it is.
        before: what was kept there; empty: nothing.
        aside: the folder into which cluster.json was moved; None: into none.
    """

    record: RunRecord
    before: bytes
    aside: SharedFolder | None


def make_folder(settings: Settings, *, is_new: bool) -> Settings:
    """Make the run's folder and point to it; return the settings with the run's final name.

    Raises:
        EndError: it cannot be made.
    """
    try:
        name = folders.make(settings.runs, settings.run_name, [], is_new=is_new)
        folders.point_to(settings.runs, name, settings.project)
    except OSError as error:
        raise refusal(settings.folder, error) from error
    return replace(settings, run_name=name)


def remember(
    settings: Settings, decided: Mapping[str, str], environ: Mapping[str, str]
) -> StartRecord:
    """Write down what the run is started with, and make the workers' folders.

    Raises:
        EndError: it cannot be written.
    """
    record = remembered.record_of(settings.runs, settings.run_name, environ)
    before = record.text()
    try:
        was = remembered.parse(before or record.copy())
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
    """Move aside what the run's last start left and this one would replace.

    Its cluster.json, if other settings are given now, and the workers' logs, if another script is.

    Raises:
        OSError: it could not be moved.
    """
    folder = settings.folder
    if not was or was == remembered.decided(decided):
        return None
    script, now = was.get("SCRIPT", ""), decided.get("SCRIPT", "")
    logs = [f"{one}/{folders.LOG}" for one in folder.names() if one.startswith("worker-")]
    places = [remembered.FILE, *(logs if script != now else [])]
    what = Path(script).stem or was.get("TRAINER_MODEL", "trainer")
    name = folders.name_of_start(folder.time_of(remembered.FILE), what)
    return folders.move_aside(folder, places, name)


def forget(settings: Settings, start: StartRecord) -> None:
    """Put back what the run was started with before this start, which the workers refused."""
    try:
        if start.before or start.aside:
            start.record.forget(start.before, settings.user)
        if start.aside:
            start.aside.move(remembered.FILE, settings.folder)
            start.aside.remove_empty()
    except (OSError, EndError) as error:
        complain(f"the earlier settings of the run could not be restored: {error}")

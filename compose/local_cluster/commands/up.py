"""`up`: a local cluster from start to end, which leaves no container and no network behind."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import datetime

from local_cluster import compose, engine
from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError
from local_cluster.run import folder as folders
from local_cluster.run import live
from local_cluster.run.lines import Screen
from local_cluster.run.report import report
from local_cluster.run.run import Run
from local_cluster.settings import remembered
from local_cluster.settings.settings import Settings, read

NO = ("", "no", "off", "false")


def up(environ: Mapping[str, str]) -> int:
    """Run a cluster to its end, and return its exit code.

    0 when all workers end with 0; else that of the worker that failed first, or what says that this
    process, or all workers, were told to stop.

    Raises:
        EndError: there is a mistake in what was given, or the engine cannot do it.
    """
    begin = time.monotonic()
    settings = read(environ, datetime.now())
    refuse_engine(settings)
    nvidia = "gpu" in settings.image and engine.has_nvidia()
    chosen = compose.variables(
        settings, environ, processors=os.cpu_count() or 1, process=os.getpid()
    )
    before = prepare(settings, {**environ, **compose.settled(settings)})
    # Every worker says all: it is for this process to leave something out, of the screen alone.
    chosen |= {"VERBOSE": "1", "LIVE_FILE": live.FILE}
    screen = Screen(shows_all=is_verbose(environ), draws=live.may_draw(environ))
    files = tuple(compose.files(settings, nvidia=nvidia))
    run = Run(settings, compose.Compose(files, chosen), screen)
    code = run.to_the_end()
    if code == EXIT_CONFIGURATION:
        remembered.forget(settings.folder, before)
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


def prepare(settings: Settings, environ: Mapping[str, str]) -> str:
    """Make the run's folder, write down its settings, and return those of an earlier start.

    Raises:
        EndError: it cannot be made.
    """
    try:
        folder = folders.make(settings.runs, settings.run_name, settings.services)
        folders.point_to(settings.runs, settings.run_name, settings.project)
        before = remembered.remember(folder, environ)
        if os.getuid() == 0:
            folders.hand_over(settings.runs, folder, settings.project, settings.user)
    except OSError as error:
        received = f'RUNS_DIR: received "{settings.runs}"; accepted: a folder that you can write'
        raise EndError(EXIT_CONFIGURATION, f"{received} ({error}).") from error
    return before

"""`report`: writes a page about the newest run, or about the runs in NAME."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from local_cluster.commands import container
from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given_variables import (
    LATEST,
    ROOT,
    RUN_NAME,
    GivenVariables,
    runs_folder,
)
from local_cluster.shared_folder import SharedFolder

PACKAGES = ROOT / ".build/report"
OPTIONS = (
    *(*container.WITHOUT_ENTRYPOINT, "--tmpfs", "/tmp:mode=1777", "--network", "none"),  # noqa: S108
    *("--env", "PYTHONPATH=/opt/report", "--volume", f"{PACKAGES}:/opt/report:ro"),
)
PROGRAM = (*container.FIRST, "python", "-m", "trainer.report")


def report(environ: Mapping[str, str]) -> NoReturn:
    """Replace this process with `docker run`, which sets the exit code.

    Raises:
        EndError: a setting is wrong, or the run, the image or the packages are missing.
    """
    runs = runs_folder(environ)
    one = container.read(environ, GivenVariables(environ), runs)
    names = _names(runs, environ.get("RUN_NAME", ""))
    if not PACKAGES.is_dir():
        accepted = f"packages in {PACKAGES}; `scripts/build.sh report` fetches them"
        raise EndError(EXIT_CONFIGURATION, f"report: accepted: {accepted}.")
    # Mounted at the same path as here, so that messages show the page's real path.
    options = [*OPTIONS, "--volume", f"{runs}:{runs}"]
    one.become(options, [*PROGRAM, *(f"{runs}/{name}" for name in names)])


def _names(runs: Path, text: str) -> list[str]:
    """Return the names of the given runs, or of the newest run if none is given.

    Raises:
        EndError: a run does not exist.
    """
    folder = SharedFolder(runs)
    names = [_newest(folder) if one == LATEST else one for one in text.split() or [LATEST]]
    for name in names:
        if not RUN_NAME.fullmatch(name) or not folder.has_folder(name):
            there = [one for one in folder.names() if folder.below(one).has_folder("worker-0")]
            those = f": {', '.join(there[-10:])}" if there else "; there are none"
            accepted = f"runs in {runs}{those}"
            raise EndError(EXIT_CONFIGURATION, f'NAME: received "{name}"; accepted: {accepted}.')
    return names


def _newest(runs: SharedFolder) -> str:
    """Return the name of the newest run.

    Raises:
        EndError: there is no run.
    """
    try:
        name = runs.target_of(LATEST)
    except OSError:
        name = ""
    if RUN_NAME.fullmatch(name) and runs.has_folder(name):
        return name
    nothing = (
        f"there is no newest run in {runs.path}; `make up-local` starts one, NAME= names another."
    )
    raise EndError(EXIT_CONFIGURATION, nothing)

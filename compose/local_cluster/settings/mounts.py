"""Refuses paths in which workers could write files that control the cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given_variables import ROOT, runs_folder
from local_cluster.settings.run_record import state_folder

OF_THE_REPOSITORY = (
    *(".build", ".ci", ".git", ".github", ".hypothesis", ".mypy_cache", ".pytest_cache"),
    *(".ruff_cache", ".venv", "benchmarks", "compose", "docs", "entrypoint", "examples"),
    *("patches", "requirements", "scripts", "tests", "trainer"),
)
"""The repository's folders without `runs`: this machine runs or reads their files."""
FOR_DATA = ROOT / ".build/data"
"""The benchmarks' data; workers need nothing else of .build."""
DEFAULT_RUNS = ROOT / "runs"
SCRIPT = "SCRIPT"
"""The variable of a file, whose folder is mounted."""


def refuse(environ: Mapping[str, str]) -> None:
    """Make sure that RUNS_DIR and DATA_DIR can be mounted, for a command that starts no cluster.

    Raises:
        EndError: some cannot; the message has a sentence for each problem.
    """
    data = environ.get("DATA_DIR", "")
    written = {"RUNS_DIR": runs_folder(environ), **({"DATA_DIR": _whole(data)} if data else {})}
    mounted = {name: str(folder) for name, folder in written.items()}
    if found := [*problems(written, mounted, (), state_folder(environ))]:
        raise EndError(EXIT_CONFIGURATION, *found)


def problems(
    written: Mapping[str, Path], mounted: Mapping[str, str], overlays: Iterable[str], state: Path
) -> Iterator[str]:
    """Yield a sentence for each refused path.

    Args:
        written: the folders in which workers can write, by their variables.
        mounted: the paths that are mounted into the workers, by their variables.
        overlays: the additional compose files, as given.
        state: the folder with the records of the runs' settings.
    """
    for variable, folder in written.items():
        if accepted := _accepted(folder, state):
            yield f'{variable}: received "{folder}"; accepted: {accepted}.'
        for file in overlays:
            path = _whole(file)
            if any(_holds(folder, one) for one in (path, *path.parents)):
                accepted = f"compose files outside of {folder}, in which workers can write"
                yield f'OVERLAYS: received "{file}"; accepted: {accepted}.'
    for name, text in mounted.items():
        # Docker separates a folder from its place in the container by a colon.
        if ":" in (os.path.dirname(text) if name == SCRIPT else text):  # noqa: PTH120 -- "" stays ""
            yield f'{name}: received "{text}"; accepted: a path of folders without a colon.'
    for name, text in {**mounted, "XDG_STATE_HOME": str(state)}.items():
        # Workers of earlier runs could write in the default folder, even if the runs are elsewhere
        # now.
        for folder in dict.fromkeys((*written.values(), DEFAULT_RUNS)):
            if text and _is_led_by_a_link(_whole(text), folder):
                accepted = f"a path without links below {folder}, in which workers can write"
                yield f'{name}: received "{text}"; accepted: {accepted}.'


def _accepted(folder: Path, state: Path) -> str:
    """Return the requirement that a folder of the workers does not meet; "": it meets all."""
    for place in (ROOT, state):
        if _holds(folder, place):
            return f"a folder without {place} in it, because workers can write there"
    ours = [ROOT / name for name in OF_THE_REPOSITORY] if not _holds(FOR_DATA, folder) else []
    for place in (state, *ours):
        if _holds(place, folder):
            return f"a folder outside of {place}, because workers can write there"
    return ""


def _whole(text: str) -> Path:
    return Path(os.path.abspath(text))  # noqa: PTH100 -- a link stays a link


def _holds(folder: Path, place: Path) -> bool:
    """Tell whether a place is a folder, or in it, with all links resolved."""
    outer, inner = Path(os.path.realpath(folder)), Path(os.path.realpath(place))
    return outer == inner or outer in inner.parents


def _is_led_by_a_link(path: Path, folder: Path) -> bool:
    """Tell whether a part of the path is a link in the folder."""
    return any(one.is_symlink() and _holds(folder, one.parent) for one in (path, *path.parents))

"""`python -m trainer.report RUN…`: writes one page about one or several runs.

A RUN is a run's folder, or its name below /runs. matplotlib and Jinja are not in the image. `make
report` adds them to the container, or a requirements.txt installs them (docs/how-to/report.md).
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster_trainer.files import write_whole
from cluster_trainer.problems import ExitCode
from cluster_trainer.report.run import WORKER, RecordedRun, read_run, worker_folders

RUNS = Path("/runs")
PAGE, COMPARISON = "report.html", "comparison.html"
NEEDED = ("matplotlib", "jinja2")
SHOWN = 10


def main(arguments: Sequence[str]) -> int:
    """Write the page; return the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.report", description="One page about runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder, or a name below /runs")
    parser.add_argument(
        "--output", type=Path, help=f"default: {PAGE}, or {COMPARISON}, in the first run's folder"
    )
    given = parser.parse_args(arguments)
    try:
        runs = [_run_of(text) for text in given.runs]
        render = _renderer()
    except (ImportError, ValueError) as error:
        print(f"trainer.report: {error}", file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    for run in runs:
        for sentence in run.unread:
            print(f"trainer.report: not read: {run.name}/{sentence}", file=sys.stderr)  # noqa: T201
    name = PAGE if len(runs) == 1 else COMPARISON
    output = given.output or _folder_of(given.runs[0]) / name
    try:
        write_whole(output, render(runs).encode(errors="replace"), durable=False)
    except OSError as error:
        print(f"trainer.report: {error}", file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    print(f"report of {', '.join(run.name for run in runs)}: {output}")  # noqa: T201
    return ExitCode.DONE


def _run_of(text: str) -> RecordedRun:
    """Read a run.

    Raises:
        ValueError: the folder has no run, or cannot be read.
    """
    received = f'RUN: received "{text}"'
    try:
        return read_run(_folder_of(text))
    except ValueError as error:
        advice = _instead(_folder_of(text))
        raise ValueError(f"{received}; accepted: {error}. {advice}") from error
    except OSError as error:
        accepted = f"a folder that user {os.getuid()} can read"
        raise ValueError(f"{received}; accepted: {accepted} ({error.strerror}).") from error


def _folder_of(text: str) -> Path:
    folder = Path(text)
    return folder if folder.is_dir() or folder.is_absolute() else RUNS / text


def _instead(folder: Path) -> str:
    """Return advice about a folder without a run: the folder above it, or runs nearby."""
    if WORKER.fullmatch(folder.name) and folder.is_dir():
        return f"This is one worker's: give the folder that it is in, {folder.parent}."
    for place in (folder, folder.parent):
        if names := _runs_in(place):
            return f"Give one of those in {place}: {', '.join(names[-SHOWN:])}."
    return "Give a folder that `make up-local` has made, or that was TRAINER_RUN_DIR."


def _runs_in(place: Path) -> list[str]:
    try:
        return sorted(one.name for one in place.iterdir() if one.is_dir() and worker_folders(one))
    except OSError:
        return []


def _renderer() -> Callable[[Sequence[RecordedRun]], str]:
    """Return the function that makes the page.

    Raises:
        ImportError: matplotlib or Jinja is not installed.
    """
    # matplotlib stores a list of fonts there; the home directory may be read-only
    os.environ.setdefault("MPLCONFIGDIR", "/tmp/matplotlib")  # noqa: S108
    try:
        from cluster_trainer.report.page import render  # noqa: PLC0415
    except ImportError as error:
        if error.name not in NEEDED:
            raise
        advice = "`make report` has them, or mount requirements/report.txt as a requirements.txt"
        raise ImportError(
            f"{' and '.join(NEEDED)} are needed and are not here: {advice}"
        ) from error
    return render


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a folder's name need not be text
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))

"""Running the image's pip, which lies where neither Python nor a shell looks for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from entrypoint.errors import HIDDEN, shortened
from entrypoint.log import Log

PIP = "/opt/pip"
HEARTBEAT_SECONDS = 10.0
OUTPUT, REPORT, TEMPORARY = "pip.log", "pip.json", "tmp"
"""In the folder of the installation; the first two stay, for whoever wants to know."""
NOTES = f"{TEMPORARY}/notes.log"
"""Why an index could not be read is in there alone."""

_USER = re.compile(r"(//|:)(?!/)\S*@")
"""What stands before the host; a password may hold anything but a space, where pip quotes an
address that it cannot read."""
_QUERY = re.compile(r"(/\S*\?)\S+")
"""Storage services sign an address in what follows the question mark."""


@dataclass(frozen=True)
class PipFailure:
    """How pip failed, and what it said; passwords are hidden."""

    code: int
    """Its exit code; negative: the signal that ended it."""
    output: str
    """What a person at a terminal would have seen."""
    notes: str
    """Its debugging notes; empty if it did not come as far as its work."""


def run_pip(
    file: Path, folder: Path, environment: Mapping[str, str], log: Log
) -> PipFailure | None:
    """Install into the folder; return None, or how pip failed.

    Says every ten seconds how far it is. Raises OSError.
    """
    start = time.monotonic()
    output = folder / OUTPUT
    (folder / TEMPORARY).mkdir()
    with output.open("wb") as stream:
        pip = subprocess.Popen(  # noqa: S603 -- the image's own pip; no shell
            [*_command(folder), "--requirement", file],
            env=_environment(environment, folder / TEMPORARY),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    while True:
        try:
            code = pip.wait(HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            last = _read(output).strip().rpartition("\n")[2].strip() or "pip has said nothing yet"
            os.utime(folder)  # a sign of life for other machines that share it
            log.info(f"installing for {time.monotonic() - start:.0f} s: {shortened(last)}")
        else:
            return PipFailure(code, _read(output), _read(folder / NOTES)) if code else None


def _command(folder: Path) -> list[str | Path]:
    """Return pip's command, to which the requirements are added.

    -I: nothing of the user's is imported. --prefix, not --target: what is installed counts. Only
    wheels, since there is no compiler.
    """
    return [
        *(sys.executable, "-IBu", f"{PIP}/pip", "install"),
        *("--prefix", folder, "--constraint", f"{PIP}/constraints.txt", "--only-binary", ":all:"),
        *("--report", folder / REPORT, "--log", folder / NOTES),
        *("--no-warn-script-location", "--no-color", "--progress-bar", "off"),
    ]


def _environment(environment: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return pip's variables: the command's, so that PIP_INDEX_URL and its like hold.

    Wheels are unpacked beside the result, since /tmp may be small. A cache would be of no use to
    what is installed once.
    """
    return {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_NO_CACHE_DIR": "1",
        **environment,
        "PIP_NO_INPUT": "1",
        "TMPDIR": str(temporary),
    }


def _read(path: Path) -> str:
    """Return what pip has said so far, nothing if it has said nothing."""
    if not path.exists():
        return ""
    return without_credentials(path.read_text(encoding="utf-8", errors="replace"))


def without_credentials(text: str) -> str:
    """Return the text with the user, the password and the query of each address hidden."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))

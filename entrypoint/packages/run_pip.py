# ruff: noqa: PTH102, PTH118, PTH123
# As everywhere in the entrypoint: os.path, not pathlib.
"""Running the image's pip, which lies where neither Python nor a shell looks for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping

from entrypoint.errors import shortened
from entrypoint.log import Log

PIP = "/opt/pip"
HEARTBEAT_SECONDS = 10.0
OUTPUT, REPORT, TEMPORARY = "pip.log", "pip.json", "tmp"
"""In the folder of the installation; the first two stay, for whoever wants to know."""
NOTES = f"{TEMPORARY}/notes.log"
"""Why an index could not be read is in there alone."""
TIME = re.compile(r"(?m)^\d{4}-\d\d-\d\dT\S+ ?")


def run_pip(file: str, folder: str, environment: Mapping[str, str], log: Log) -> str | None:
    """Install into the folder; return None, or all that pip noted if it failed.

    Says every ten seconds how far it is. Raises OSError.
    """
    begin = time.monotonic()
    output = os.path.join(folder, OUTPUT)
    os.mkdir(os.path.join(folder, TEMPORARY))
    with open(output, "wb") as stream:
        pip = subprocess.Popen(  # noqa: S603 -- the image's own pip; no shell
            [*_command(folder), "--requirement", file],
            env=_environment(environment, os.path.join(folder, TEMPORARY)),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    while True:
        try:
            failed = pip.wait(HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            last = _read(output).strip().rpartition("\n")[2].strip() or "pip has said nothing yet"
            log.info(f"installing since {time.monotonic() - begin:.0f} s: {shortened(last)}")
        else:
            return TIME.sub("", _read(os.path.join(folder, NOTES))) if failed else None


def _command(folder: str) -> list[str]:
    """Return pip's command, to which the requirements are added.

    -I: nothing of the user's is imported. --prefix, not --target: what is installed counts. Only
    wheels, since there is no compiler.
    """
    return [
        *(sys.executable, "-IBu", f"{PIP}/pip", "install"),
        *("--prefix", folder, "--constraint", f"{PIP}/constraints.txt", "--only-binary", ":all:"),
        *("--report", os.path.join(folder, REPORT), "--log", os.path.join(folder, NOTES)),
        *("--no-warn-script-location", "--no-color", "--progress-bar", "off"),
    ]


def _environment(environment: Mapping[str, str], temporary: str) -> dict[str, str]:
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
        "TMPDIR": temporary,
    }


def _read(path: str) -> str:
    """Return what pip has said so far."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()

"""Runs the image's pip, which is in a folder that neither Python nor a shell searches."""

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
"""Files in the installation's folder. The first two stay there for inspection."""
NOTES = f"{TEMPORARY}/notes.log"
"""pip's debug log. Only this log has the reason why an index could not be read."""

_USER = re.compile(r"(//|:)(?!/)\S*@")
"""The part of an address before the host. pip also quotes addresses that it cannot parse, so a
password may contain any character but a space."""
_QUERY = re.compile(r"(/\S*\?)\S+")
"""Storage services put a signature after the question mark of an address."""


@dataclass(frozen=True)
class PipFailure:
    """A failure of pip, with its output. Credentials in addresses are hidden."""

    code: int
    """Its exit code, or minus the signal that ended it."""
    output: str
    """Its output, as on a terminal."""
    notes: str
    """Its debug log; "" if pip failed before it began to install."""


def run_pip(
    file: Path, folder: Path, environment: Mapping[str, str], log: Log
) -> PipFailure | None:
    """Install into the folder; return None, or the failure.

    Logs the progress every ten seconds. Raises OSError.
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
            os.utime(folder)  # shows other machines that this installation is alive
            log.info(f"installing for {time.monotonic() - start:.0f} s: {shortened(last)}")
        else:
            return PipFailure(code, _read(output), _read(folder / NOTES)) if code else None


def _command(folder: Path) -> list[str | Path]:
    """Return pip's command, without the requirements.

    -I: pip imports no module of the user. --prefix, unlike --target, respects installed packages.
    Only wheels are accepted, because there is no compiler.
    """
    return [
        *(sys.executable, "-IBu", f"{PIP}/pip", "install"),
        *("--prefix", folder, "--constraint", f"{PIP}/constraints.txt", "--only-binary", ":all:"),
        *("--report", folder / REPORT, "--log", folder / NOTES),
        *("--no-warn-script-location", "--no-color", "--progress-bar", "off"),
    ]


def _environment(environment: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return pip's variables: the command's, so that PIP_INDEX_URL and others apply.

    Wheels are unpacked beside the result, because /tmp may be small. There is no cache, because
    packages are installed only once.
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
    """Return pip's output so far; "" if there is none."""
    if not path.exists():
        return ""
    return without_credentials(path.read_text(encoding="utf-8", errors="replace"))


def without_credentials(text: str) -> str:
    """Return the text without the user, the password and the query of each address."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))

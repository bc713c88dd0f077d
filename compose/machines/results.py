"""`fetch`: the results of a run, from the machines into the local folder of the run."""

from __future__ import annotations

import shlex
import subprocess
import tarfile
from pathlib import PurePosixPath
from typing import IO, cast

from local_cluster.messages import complain
from local_cluster.run.folder import LOG
from local_cluster.shared_folder import SharedFolder
from machines.machine import Machine, last_line

WARNED = 1
"""The exit code of `tar` where a file changed while it was read."""
PIECE = 1 << 20


def fetch(machine: Machine, there: str, run: SharedFolder, project: str) -> str:
    """Copy a worker's folder home; return what went wrong.

    Args:
        machine: where it is.
        there: the folder of the run on the machine.
        run: the folder of the run here.
        project: whose container's lines are saved, too, if it is still there.
    """
    folder = f"tar -c -f - -C {shlex.quote(there)} {machine.service}"
    process = machine.start(folder, output=subprocess.PIPE)
    left_out = 0
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", process.stdout), mode="r|") as tar:
            for member in tar:
                left_out += not _save(tar, member, machine.service, run)
    except (tarfile.TarError, OSError) as error:
        process.kill()
        said = last_line(process.communicate()[1].decode(errors="replace"))
        return f"{machine.name}: the results could not be fetched: {error} ({said})"
    _, err = process.communicate()
    if process.returncode > WARNED:
        said = last_line(err.decode(errors="replace"))
        return f"{machine.name}: the results could not be fetched: {said}"
    if left_out:
        complain(f"{machine.name}: {left_out} links and the like were not fetched")
    _save_lines(machine, run, project)
    return ""


def _save(tar: tarfile.TarFile, member: tarfile.TarInfo, service: str, run: SharedFolder) -> bool:
    """Save a file, or make a folder; return whether it was one of these.

    Workers can write what is there, so a name that leads elsewhere is left out, and so are links.
    """
    parts = PurePosixPath(member.name).parts
    if not parts or parts[0] != service or ".." in parts:
        return False
    place = run.below(str(PurePosixPath(*parts)))
    if member.isdir():
        place.make()
        return True
    content = tar.extractfile(member) if member.isreg() else None
    if content is None or len(parts) == 1:
        return False
    above = run.below(str(PurePosixPath(*parts[:-1])))
    above.make()
    with above.written(parts[-1]) as file:
        while piece := content.read(PIECE):
            file.write(piece)
    return True


def _save_lines(machine: Machine, run: SharedFolder, project: str) -> None:
    """Save all that the worker has printed, if its container is there."""
    process = machine.engine.start(
        ["logs", f"{project}-{machine.service}"],
        output=subprocess.PIPE,
        errors=subprocess.STDOUT,
    )
    lines, _ = process.communicate()
    if not process.returncode:
        run.below(machine.service).replace(LOG, lines)

"""Copies the results of a run from the machines into the run's folder here.

A worker's folder here then has the files of the folder on its machine, and no others.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import IO, cast

from local_cluster import processes
from local_cluster.messages import complain, say
from local_cluster.run.folder import LOG
from local_cluster.shared_folder import SharedFolder
from machines.cluster_record import Kept
from machines.copies.set_aside import set_aside
from machines.machine import RUN, Machine, container_of, last_line

WARNED = 1
"""The exit code of `tar` if a file changed while it was read."""
PIECE = 1 << 20


class _Member(tarfile.TarInfo):
    """A member of an archive that must end with its end mark.

    For `tarfile`, an archive that was cut off between two members is complete.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Return the member with this header.

        Raises:
            ReadError: the archive was cut off.
        """
        if len(buf) != tarfile.BLOCKSIZE:
            raise tarfile.ReadError("the archive was cut off")
        return super().frombuf(buf, encoding, errors)


def fetch(machine: Machine, there: str, kept: Kept, without: Sequence[str] = ()) -> str:
    """Copy a worker's folder and its output to this machine; return an error message, or "".

    Args:
        machine: the worker's machine.
        there: the run's folder on the machine.
        kept: the cluster.
        without: names of files and folders to leave out.
    """
    left_out = " ".join(f"--exclude={shlex.quote(name)}" for name in without)
    command = f"tar -c -f - -C {shlex.quote(there)} {left_out} {machine.service}"
    saved, not_saved, problem = set(), 0, ""
    with tempfile.TemporaryFile() as errors:  # a pipe could be full before anybody reads it
        process = machine.start(command, output=subprocess.PIPE, errors=errors.fileno())
        try:
            source = cast("IO[bytes]", process.stdout)
            with tarfile.open(fileobj=source, mode="r|", tarinfo=_Member) as tar:
                for member in tar:
                    if _save(tar, member, machine.service, kept.folder):
                        saved.add(str(PurePosixPath(member.name)))
                    else:
                        not_saved += 1
        except (tarfile.TarError, OSError) as error:
            processes.kill(process)
            problem = f"{error}: "
        process.communicate()
        errors.seek(0)
        said = last_line(errors.read().decode(errors="replace"))
    if process.returncode < 0 and not problem:
        said = f"ssh was ended by signal {-process.returncode}"
    if problem or process.returncode not in (0, WARNED):
        return f"{machine.name}: the results could not be fetched: {problem}{said}"
    if not_saved:
        complain(f"{machine.name}: {not_saved} links or special files were not fetched")
    _save_lines(machine, kept)
    return _set_aside(machine, kept, saved, without)


def _save(tar: tarfile.TarFile, member: tarfile.TarInfo, service: str, run: SharedFolder) -> bool:
    """Save a file or make a folder; return False for anything else, which is skipped.

    Links and paths that lead out of the worker's folder are skipped: workers could have made them.
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


def _set_aside(machine: Machine, kept: Kept, saved: set[str], without: Sequence[str]) -> str:
    """Set aside the files that the machine no longer has; return an error message, or ""."""
    try:
        count, where = set_aside(kept.folder, machine.service, saved, without)
    except OSError as error:
        return f"{machine.name}: files that it no longer has could not be moved: {error}"
    if where:
        say(
            f"{machine.name} no longer has {count} file(s) that were here; they are in {where.path}"
        )
    return ""


def _save_lines(machine: Machine, kept: Kept) -> None:
    """Save the worker's output, if its container exists and belongs to this run."""
    name = shlex.quote(container_of(machine, kept.project))
    label = f"{{{{index .Config.Labels {json.dumps(RUN)}}}}}"
    run = f"$(docker inspect --format {shlex.quote(label)} {name})"
    command = f'[ "{run}" = {shlex.quote(kept.run)} ] && docker logs {name} 2>&1'
    process = machine.start(command, output=subprocess.PIPE)
    lines, _ = process.communicate()
    if not process.returncode:
        kept.folder.below(machine.service).replace(LOG, lines)

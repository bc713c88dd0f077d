"""Packs the folder with the user's code, computes its digest, and copies it to the machines."""

from __future__ import annotations

import hashlib
import os
import shlex
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from machines.checks.facts import Facts
from machines.machine import last_line

LEFT_OUT = (".git", "__pycache__", ".venv")
DIGITS = 16
IN_FOLDER = "code"
"""Below a machine's folder: one folder for each digest."""
RECEIVE = """
final={final}
[ -d "$final" ] && exec cat >/dev/null
set -e
umask 077
mkdir -p "$(dirname "$final")"
new=$(mktemp -d "$final.XXXXXXXX")
trap 'rm -rf "$new"' EXIT
cat > "$new/tar"
[ $(wc -c < "$new/tar") = {size} ] || {{ echo 'the connection was lost' >&2; exit 1; }}
mkdir "$new/code"
tar -x --no-same-permissions -f "$new/tar" -C "$new/code"
mv -T -n "$new/code" "$final" || [ -d "$final" ]
"""
"""Receives a tar file. Other commands may receive the same one at the same time, because one
machine may have several names, and several projects may use it. So each has a temporary folder,
and the first one to finish gives it the final name. tar accepts a truncated stream, so the size is
checked."""


@dataclass(frozen=True)
class CodeFolder:
    """A packed folder.

    Attributes:
        archive: a temporary tar file, which is deleted when it is closed.
        digest: the digest of the names, the contents and the executable bits.
        files: the number of files.
    """

    archive: IO[bytes]
    digest: str
    files: int


def pack(folder: str, without: Path) -> CodeFolder:
    """Pack a folder, except for LEFT_OUT.

    Args:
        folder: the folder.
        without: another folder to leave out, the one of the runs.

    Raises:
        EndError: it cannot be read, or contains a socket or another special file.
    """
    archive = tempfile.NamedTemporaryFile()  # noqa: SIM115 -- the caller needs it open
    digest, count = hashlib.sha256(), 0
    try:
        file = cast("IO[bytes]", archive)
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in _paths(Path(folder), without):
                count += path.is_symlink() or not path.is_dir()
                _add(tar, path, str(path.relative_to(folder)), digest)
    except OSError as error:
        message = f'WORKSPACE_DIR: received "{folder}"; accepted: a readable folder ({error}).'
        raise EndError(EXIT_CONFIGURATION, message) from error
    archive.flush()
    return CodeFolder(cast("IO[bytes]", archive), digest.hexdigest()[:DIGITS], count)


def _paths(folder: Path, without: Path) -> Iterator[Path]:
    """Yield the files, the links, and the folders that have nothing else to be made for."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        here = Path(place)
        folders[:] = sorted(one for one in folders if one not in LEFT_OUT and here / one != without)
        yield from (here / one for one in folders if (here / one).is_symlink())
        yield from (here / one for one in sorted(files))
        if not folders and not files and here != folder:
            yield here


def _raise(error: OSError) -> None:
    raise error


def _add(tar: tarfile.TarFile, path: Path, name: str, digest: hashlib._Hash) -> None:
    info = tar.gettarinfo(path, name)
    if not (info.isreg() or info.issym() or info.islnk() or info.isdir()):
        raise OSError(f"{path} is neither a file nor a folder nor a link")
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    digest.update(f"{name}\0{info.type!r}\0{info.mode}\0{info.linkname}\0".encode(errors="replace"))
    if info.issym() or info.isdir():
        tar.addfile(info)
        return
    content = path.read_bytes()
    info.type, info.linkname, info.size = tarfile.REGTYPE, "", len(content)
    digest.update(f"{len(content)}\0".encode() + content)
    with tempfile.SpooledTemporaryFile() as file:
        file.write(content)
        file.seek(0)
        tar.addfile(info, file)


def place_of(facts: Facts, digest: str) -> str:
    """Return the path of code with this digest on a machine."""
    return f"{facts.folder}/{IN_FOLDER}/{digest}"


def send(code: CodeFolder, facts: Facts) -> str:
    """Copy the folder to a machine, unless it is there; return an error message, or "".

    Only the user may read it, because it may hold secrets.
    """
    place = place_of(facts, code.digest)
    size = Path(code.archive.name).stat().st_size
    script = RECEIVE.format(final=shlex.quote(place), size=size)
    with Path(code.archive.name).open("rb") as source:  # each machine reads from the start
        process = facts.machine.start(script, source=source.fileno())
        _, err = process.communicate()
    if process.returncode:
        said = last_line(err.decode(errors="replace"))
        return f"{facts.machine.name}: the code could not be copied: {said}"
    return ""


def make_folders(facts: Facts, run: str) -> str:
    """Make a run's folders on a machine, as its user; return an error message, or ""."""
    made = [f"{facts.folder}/runs/{run}/{facts.machine.service}", facts.data]
    ended = facts.machine.ask(f"mkdir -p {' '.join(map(shlex.quote, made))}")
    return f"{facts.machine.name}: {last_line(ended.stderr)}" if ended.returncode else ""

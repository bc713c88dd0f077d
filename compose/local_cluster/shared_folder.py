"""Accesses folders that workers can write. No link in them is followed, and no file is trusted.

A worker could put a link in the place of a file that this program writes. Then the program would
write to the link's target on this machine. It would wait forever at a FIFO, and a device has no
end. So each part of a path below such a folder is opened separately, none may be a link, and the
file must be a regular file. Files that control this machine are elsewhere
(`settings/run_record.py`).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from local_cluster.messages import EXIT_CONFIGURATION, EndError

ROOT_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FOLDER_FLAGS = ROOT_FLAGS | os.O_NOFOLLOW
FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL
OF_ANOTHER_KIND = (
    *(errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO, errno.EISDIR),
    errno.EOPNOTSUPP,  # of a socket, on macOS
)
"""The system's errors for a link, a FIFO, a folder and the like in the place of a file."""
NEW = ".new-"
LEFT_OVER_SECONDS = 3600
"""The age from which a new file is a leftover of a crash. Others are renamed in milliseconds."""
MOST_BYTES = 1 << 20
"""The maximum size of a small file that is read as a whole."""


@dataclass(frozen=True)
class SharedFolder:
    """A folder that is mounted into the workers, or a folder below it.

    Unless stated otherwise, every method raises OSError if a part of the path is a link, is
    missing, or is of another kind.

    Attributes:
        root: the mounted folder, which the user has chosen, and which may be a link.
        inside: the folder's place below it.
    """

    root: Path
    inside: str = ""

    @property
    def path(self) -> Path:
        """Its path, for messages."""
        return self.root / self.inside

    def below(self, place: str) -> SharedFolder:
        """Return a folder below this one, which may not exist."""
        return SharedFolder(self.root, str(PurePosixPath(self.inside, place)))

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[int]:
        """Open the folder, and yield its file descriptor.

        Args:
            make: whether to make missing folders.
        """
        with ExitStack() as stack:
            number = _closing(stack, os.open(self.root, ROOT_FLAGS))
            place = self.root
            for part in PurePosixPath(self.inside).parts:
                place /= part
                if part == "..":
                    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self.path))
                with _naming(place):
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(part, dir_fd=number)
                    number = _closing(stack, os.open(part, FOLDER_FLAGS, dir_fd=number))
            yield number

    def make(self) -> None:
        """Make the folder, and those above it, unless it exists."""
        with self.opened(make=True):
            pass

    def make_new(self) -> None:
        """Make the folder.

        Raises:
            FileExistsError: it exists.
        """
        place = PurePosixPath(self.inside)
        above = SharedFolder(self.root, str(place.parent))
        with above.opened(make=True) as parent, _naming(self.path):
            os.mkdir(place.name, dir_fd=parent)

    def is_there(self) -> bool:
        """Tell whether the folder can be opened; never raises OSError."""
        try:
            with self.opened():
                return True
        except OSError:
            return False

    def names(self) -> list[str]:
        """Return the names in the folder, sorted; empty if it cannot be opened."""
        try:
            with self.opened() as number:
                return sorted(os.listdir(number))  # noqa: PTH208 -- of a file descriptor
        except OSError:
            return []

    def has_folder(self, name: str) -> bool:
        """Tell whether it contains a folder of this name; never raises OSError."""
        return stat.S_ISDIR(self._mode(name))

    def has_file(self, name: str) -> bool:
        """Tell whether it contains a regular file of this name; never raises OSError."""
        return stat.S_ISREG(self._mode(name))

    def time_of(self, name: str) -> float:
        """Return the time of a file's last change, in seconds since 1970; 0 if there is no file."""
        found = self._stat(name)
        return found.st_mtime if found else 0.0

    def open(self, name: str, flags: int = os.O_RDONLY) -> BinaryIO:
        """Open a regular file, without a buffer."""
        with self.opened() as number, _naming(self.path / name):
            file = os.open(name, flags | FILE_FLAGS, 0o666, dir_fd=number)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not a regular file", str(self.path / name))
        mode = "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "wb"
        return cast("BinaryIO", os.fdopen(file, mode, buffering=0))

    def open_to_append(self, name: str) -> BinaryIO:
        """Open a regular file to append to it; make it if it is missing."""
        return self.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def read(self, name: str, most: int = MOST_BYTES) -> bytes:
        """Return the first bytes of a regular file."""
        with self.open(name) as file:
            return file.read(most)

    def read_end(self, name: str, most: int = MOST_BYTES) -> bytes:
        """Return the last bytes of a regular file."""
        with self.open(name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file atomically, in the place of any other file of this name."""
        with self.written(name) as opened:
            opened.write(content)

    @contextmanager
    def written(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file, which replaces any other file of this name once it is complete."""
        with self._renamed_to(name) as (new, number):
            file = os.open(new, NEW_FLAGS | FILE_FLAGS, 0o666, dir_fd=number)
            with os.fdopen(file, "wb") as opened:
                yield opened

    def link(self, name: str, to: str) -> None:
        """Make a link, in the place of any other file of this name."""
        with self._renamed_to(name) as (new, number):
            os.symlink(to, new, dir_fd=number)

    def target_of(self, name: str) -> str:
        """Return the target of a link."""
        with self.opened() as number, _naming(self.path / name):
            return os.readlink(name, dir_fd=number)

    def move(self, name: str, to: SharedFolder) -> None:
        """Move a file into another folder, which is made; replace a file of that name."""
        with self.opened() as here, to.opened(make=True) as there:
            source = self.path / name
            culprit = to.path / name if self.has_file(name) else source
            with _naming(culprit):
                os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)

    def remove_empty(self) -> None:
        """Remove the folder if it is empty."""
        place = PurePosixPath(self.inside)
        with suppress(OSError), SharedFolder(self.root, str(place.parent)).opened() as above:
            os.rmdir(place.name, dir_fd=above)

    def hand_over(self, name: str, uid: int, gid: int) -> None:
        """Change the owner of this name and of everything below it, but not of links' targets."""
        with self.opened() as number, _naming(self.path / name):
            os.chown(name, uid, gid, dir_fd=number, follow_symlinks=False)
            for _, folders, files, inside in os.fwalk(name, dir_fd=number, follow_symlinks=False):
                for one in folders + files:
                    os.chown(one, uid, gid, dir_fd=inside, follow_symlinks=False)

    @contextmanager
    def _renamed_to(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield an unused name, and the folder; then rename the new file."""
        prefix = f"{NEW}{name.lstrip('.')}"
        new = f"{prefix}-{secrets.token_hex(8)}"
        with self.opened() as number, _naming(self.path / name):
            _remove_left_over(prefix, number)
            try:
                yield new, number
                os.replace(new, name, src_dir_fd=number, dst_dir_fd=number)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=number)
                raise

    def _mode(self, name: str) -> int:
        found = self._stat(name)
        return found.st_mode if found else 0

    def _stat(self, name: str) -> os.stat_result | None:
        """Return the status of a file, a folder or a link; None: there is none."""
        try:
            with self.opened() as number:
                return os.stat(name, dir_fd=number, follow_symlinks=False)
        except OSError:
            return None


def refusal(folder: SharedFolder, error: OSError) -> EndError:
    """Return the error for a folder that cannot be used, or that holds a link or a special file."""
    if error.errno in OF_ANOTHER_KIND:
        accepted = "folders and regular files, no links, because workers can write there. Remove it"
        place = error.filename or folder.path
        return EndError(EXIT_CONFIGURATION, f"{place}: {error.strerror}; accepted: {accepted}.")
    received = f'RUNS_DIR: received "{folder.root}"; accepted: a folder that you can write'
    return EndError(EXIT_CONFIGURATION, f"{received} ({error}).")


def _closing(stack: ExitStack, number: int) -> int:
    stack.callback(os.close, number)
    return number


@contextmanager
def _naming(place: Path) -> Iterator[None]:
    """Put the whole path into an error; the system reports only the last part."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from error


def _remove_left_over(prefix: str, inside: int) -> None:
    """Remove files with this prefix that a crash has left; a file of another start stays."""
    for name in os.listdir(inside):
        if name.startswith(prefix):
            with suppress(OSError):
                then = os.stat(name, dir_fd=inside, follow_symlinks=False).st_mtime
                if time.time() - then > LEFT_OVER_SECONDS:
                    os.unlink(name, dir_fd=inside)

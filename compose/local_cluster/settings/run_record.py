"""Records the settings of a run's start as JSON: for `make resume`, with a copy for people.

`make resume` takes mounts, compose files and the user from the record. So it is in a folder of the
user (XDG_STATE_HOME) that no container can write. The copy in the run's folder, cluster.json,
decides nothing, because workers can write it. So a run that was moved, or that another user has
started, cannot be resumed without its settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings import names
from local_cluster.settings.given_variables import User
from local_cluster.shared_folder import SharedFolder

FILE = "cluster.json"
ABOUT, SETTINGS = "about", "settings"
HEAD = "What this run was started with."
SECRET = "CLUSTER_TOKEN"  # noqa: S105 -- only its name is kept


@dataclass(frozen=True)
class RunRecord:
    """The files with the settings of a run's start.

    Attributes:
        folder: the run's folder, with the copy.
        kept: the file that no container can write.
    """

    folder: SharedFolder
    kept: Path

    def remember(self, environ: Mapping[str, str], user: User) -> None:
        """Write the run's settings.

        Raises:
            OSError: the copy cannot be written.
            EndError: the record cannot be written.
        """
        self._write(render(decided(environ)), user)

    def forget(self, before: bytes, user: User) -> None:
        """Restore the previous settings, because the workers have refused the newer ones.

        Raises:
            OSError: the copy cannot be written, or the record cannot be removed.
            EndError: the record cannot be written.
        """
        if before:
            self._write(before, user)
        else:
            self.kept.unlink(missing_ok=True)

    def text(self) -> bytes:
        """Return the record of the last start; empty: there is none.

        Raises:
            EndError: it cannot be read.
        """
        try:
            return self.kept.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            accepted = "a file with the run's settings that you can read"
            message = f"{self.kept}: {error.strerror}; accepted: {accepted}."
            raise EndError(EXIT_CONFIGURATION, message) from error

    def copy(self) -> bytes:
        """Return the content of cluster.json, which a worker may have written; empty: no file."""
        try:
            return self.folder.read(FILE)
        except OSError:
            return b""

    def _write(self, content: bytes, user: User) -> None:
        try:
            self._keep(content, user)
        except OSError as error:
            accepted = "a folder that you can write and no container can"
            message = f"XDG_STATE_HOME: accepted: {accepted} ({error})."
            raise EndError(EXIT_CONFIGURATION, message) from error
        told = f"{HEAD} This is a copy to read: `make resume` reads {self.kept}."
        self.folder.replace(FILE, render(parse(content), told))

    def _keep(self, content: bytes, user: User) -> None:
        folder = self.kept.parent
        made = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.kept.with_name(f".new-{self.kept.name}")
        new.write_bytes(content)
        new.replace(self.kept)
        own_by(user, (self.kept, *made))


def own_by(user: User, paths: Iterable[Path]) -> None:
    """Give files that root has made to the user, who must be able to write them without sudo.

    Raises:
        OSError: this process is not allowed to.
    """
    if os.getuid() == 0:
        for path in paths:
            os.chown(path, int(user.uid), int(user.gid))


def record_of(runs: Path, name: str, environ: Mapping[str, str]) -> RunRecord:
    """Return the files with the settings of a run's start.

    Raises:
        EndError: the user's state folder is unknown.
    """
    whole = os.path.realpath(runs).encode(errors="surrogateescape")
    place = hashlib.sha256(whole).hexdigest()[:16]
    return RunRecord(
        SharedFolder(runs, name), state_folder(environ) / "runs" / place / f"{name}.json"
    )


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's folder for programs' state (XDG Base Directory Specification).

    Raises:
        EndError: it is unknown.
    """
    given = environ.get("XDG_STATE_HOME", "")
    # The specification requires that relative paths are ignored.
    base = Path(given) if os.path.isabs(given) else _home(environ) / ".local/state"  # noqa: PTH117
    if not base.is_absolute():
        accepted = "the absolute path of a folder that you can write and no container can"
        why = "there is no absolute home folder to replace it"
        message = f'XDG_STATE_HOME: received "{given}", and {why}; accepted: {accepted}.'
        raise EndError(EXIT_CONFIGURATION, message)
    return base / "cluster-trainer"


def _home(environ: Mapping[str, str]) -> Path:
    """Return the home folder of the user to whom the results belong; with sudo, the caller's."""
    person = environ.get("SUDO_UID", "")
    if os.getuid() == 0 and person.isdecimal():
        try:
            return Path(pwd.getpwuid(int(person)).pw_dir)
        except KeyError:
            pass
    return Path(os.path.expanduser("~"))  # noqa: PTH111 -- without a home folder, it raises nothing


def is_remembered(name: str) -> bool:
    """Whether a variable determines a run, not just one start of it, and is not a secret.

    A package index of pip may contain a password.
    """
    if name in (SECRET, "TRAINER_RESUME", "VERBOSE") or name.startswith("PIP_"):
        return False
    return name in names.OWN or name in names.passed_on()


def decided(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that determine a run; of SECRET, only the name."""
    found = {
        name: environ[name] for name in sorted(environ) if is_remembered(name) and environ[name]
    }
    return found | ({SECRET: ""} if environ.get(SECRET) else {})


def render(settings: Mapping[str, str], about: str = HEAD) -> bytes:
    """Return the file's content."""
    return json.dumps({ABOUT: about, SETTINGS: dict(settings)}, indent=2).encode() + b"\n"


def parse(content: bytes) -> dict[str, str]:
    """Return the file's values of known names; SECRET is included, but empty."""
    try:
        found = json.loads(content)[SETTINGS].items()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}  # not written by this program: the training can write the copy
    texts = {name: text for name, text in found if isinstance(text, str)}
    settings = {name: text for name, text in texts.items() if is_remembered(name)}
    return settings | ({SECRET: ""} if SECRET in texts else {})

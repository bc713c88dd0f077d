"""The requirements file, and the folder of its packages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem
from entrypoint.settings.files import UnreadableFileError, is_file, read_text
from entrypoint.settings.options import VARIABLES

DEFAULT_NAME = "requirements.txt"
NONE = "none"
PACKAGES_DIR = "PACKAGES_DIR"
"""The variable that names the folder for the command. The image's Python searches it last."""
FOLDER = Path("/data/.packages")
"""A folder in the volume of the data sets, which is kept as long as they are. TRAINER_DATA_DIR may
be a scheduler's read-only input."""
IMAGE_PACKAGES = "opt/pip/constraints.txt"
"""The image's packages, name==version; scripts/image_packages.py writes it."""
DIGITS = 16

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
INCLUDED = re.compile(r"(?m)^\s*(?:-r|-c|--requirement|--constraint)[ \t=]*(\S+)")
REQUIREMENT = re.compile(r"(?m)^\s*[^\s#]")


@dataclass(frozen=True)
class Requirements:
    """A requirements file with at least one requirement, and the folder of its packages."""

    file: Path
    folder: Path
    """Named after a digest of its inputs: the file and the files that it includes, Python, the
    machine's architecture, and the image's packages."""

    @property
    def site_packages(self) -> Path:
        """The folder of the modules."""
        return self.folder / "lib" / PYTHON / "site-packages"

    def is_installed(self) -> bool:
        """Whether all packages are installed. The folder gets its final name last."""
        return os.path.isdir(self.folder)  # noqa: PTH112 -- Path.is_dir() raises PermissionError

    def added_to(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with which a command finds the packages and their programs."""
        path = f"{environment.get('PATH', os.defpath)}:{self.folder}/bin"
        return {**environment, PACKAGES_DIR: str(self.site_packages), "PATH": path}


def find_requirements(
    named: str | None, directory: Path, *, root: Path = Path("/"), label: str = "REQUIREMENTS_FILE"
) -> Requirements | None:
    """Return the named file, otherwise the directory's requirements.txt, if it exists.

    None if there is no file, or it is empty. `root` is the root of the file system; `label` is the
    variable's name in messages. Raises ConfigurationError.
    """
    given = (named or "").strip()
    path = directory / (given or DEFAULT_NAME)
    if given == NONE or not (given or is_file(path)):
        return None
    try:
        texts = _read(path, {})
        if not any(REQUIREMENT.search(text) for text in texts):
            return None
        image = read_text(root / IMAGE_PACKAGES)
    except UnreadableFileError as error:
        accepted = VARIABLES["REQUIREMENTS_FILE"].accepted
        raise ConfigurationError([Problem(label, str(path), accepted, str(error))]) from None
    digest = _digest((*texts, image, PYTHON, os.uname().machine))
    return Requirements(path, FOLDER / digest)


def notes_on(requirements: Requirements | None) -> tuple[str, ...]:
    """Return a note about packages that are not installed while the settings are checked."""
    if requirements is None or requirements.is_installed():
        return ()
    return (
        f"The packages of {requirements.file} are not installed yet; a start installs them first.",
    )


def _read(path: Path, texts: dict[Path, str]) -> Iterable[str]:
    """Return the texts of the file and of included files. Raises UnreadableFileError.

    Unreadable included files are skipped here, because pip reports them.
    """
    texts[path] = text = read_text(path)
    for name in INCLUDED.findall(text):
        with suppress(UnreadableFileError, RuntimeError):  # RuntimeError: a loop of links
            included = (path.parent / name).resolve()
            if included not in texts:
                _read(included, texts)
    return texts.values()


def _digest(texts: Iterable[str]) -> str:
    import hashlib  # noqa: PLC0415 -- slow to import, and most starts have no requirements

    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:DIGITS]

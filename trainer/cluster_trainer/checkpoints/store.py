"""One worker's folder of checkpoints: complete files under their final names, the last few kept."""

import hashlib
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cluster_trainer.checkpoints.checkpoint import Sink, Stage, number_of
from cluster_trainer.files import UNFINISHED, make_folder, write_streamed

KEPT = 3
DIGITS = 16
"""Of a SHA-256: enough digits to detect accidental damage."""
NAME = re.compile(r"(?P<step>\d{8,})\.(?P<stage>\d)-(?P<checksum>[0-9a-f]{16})\.npz")
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Stored:
    """A checkpoint's file on disk."""

    number: int
    content: bytes


class Store:
    """The folder of one worker. No other process writes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Stored | None:
        """Return the newest complete checkpoint; remove damaged ones with a warning."""
        for file in reversed(self._files()):
            content = _read_whole(file)
            if content is not None:
                return Stored(_number(file), content)
        return None

    def newest_file(self) -> Path | None:
        """Return the newest checkpoint's file without checking it; None if there is none."""
        return next(reversed(self._files()), None)

    def newest_bytes(self) -> int:
        """Return the size of that file; 0 if there is none."""
        file = self.newest_file()
        return file.stat().st_size if file else 0

    def write(self, number: int, content: bytes) -> None:
        """Write a checkpoint whose content is known; see `stream`."""
        self.stream(number, lambda file: file.write(content))

    def stream(self, number: int, write: Callable[[Sink], object]) -> None:
        """Write a checkpoint piece by piece: it is complete under its name, or absent.

        Older ones are removed first, so that there is never need for more than KEPT at a time.

        Args:
            number: of the checkpoint.
            write: writes its content to the file that it is given.

        Raises:
            OSError: it could not be written; the older ones are still there.
        """
        make_folder(self.folder)
        step, stage = divmod(number, len(Stage))
        name = f"{step:08d}.{stage}"

        def write_it(opened: BinaryIO) -> str:
            file = _Digested(opened)
            write(file)
            return f"{name}-{file.digest.hexdigest()[:DIGITS]}.npz"

        others = [other for other in self._files() if _number(other) != number]
        for other in others[: -(KEPT - 1)]:
            other.unlink()
        file = write_streamed(self.folder, f"{name}.npz", write_it, durable=True)
        for other in self._files():  # an earlier one of the same place, with other metrics
            if _number(other) == number and other != file:
                other.unlink()

    def set_aside_after(self, number: int) -> Path:
        """Move those that are further than a number aside: another run's, which would win later.

        Returns:
            the folder where they are now, named by the present time.
        """
        place = self.folder / time.strftime("other-run-%Y%m%d-%H%M%S")
        make_folder(place)
        for file in self._files():
            if _number(file) > number:
                file.replace(place / file.name)
        return place

    def keep_newest(self) -> None:
        """Remove all but the newest, unless the disk is broken."""
        with suppress(OSError):
            for older in self._files()[:-1]:
                older.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove unfinished files of a killed run."""
        for unfinished in self.folder.glob(f"{UNFINISHED}*"):
            unfinished.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted((file for file in self.folder.iterdir() if _matches(file)), key=_number)


@dataclass(frozen=True)
class _Digested:
    file: BinaryIO
    digest: Any = field(default_factory=hashlib.sha256)

    def write(self, piece: Any) -> int:
        self.digest.update(piece)
        return self.file.write(piece)

    def flush(self) -> None:
        self.file.flush()


def _matches(file: Path) -> re.Match[str] | None:
    return NAME.fullmatch(file.name)


def _number(file: Path) -> int:
    found = NAME.fullmatch(file.name)
    assert found  # noqa: S101  only these are listed
    return number_of(int(found["step"]), Stage(int(found["stage"])))


def _read_whole(file: Path) -> bytes | None:
    """Return a file's content; None if it is damaged."""
    try:
        content = file.read_bytes()
    except OSError as error:
        log.warning("checkpoint %s cannot be read and is left out: %s", file, error.strerror)
        return None
    found, expected = hashlib.sha256(content).hexdigest()[:DIGITS], file.stem.rpartition("-")[2]
    if found == expected:
        return content
    log.warning(
        "checkpoint %s is damaged and was removed: its %d bytes have the SHA-256 %s…",
        file.name,
        len(content),
        found,
    )
    file.unlink(missing_ok=True)
    return None

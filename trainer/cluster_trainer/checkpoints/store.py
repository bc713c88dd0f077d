"""One worker's folder of checkpoints, with the last few; a file with a final name is complete."""

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
"""The number of digits of a SHA-256 that are used: enough to detect accidental damage."""
NAME = re.compile(r"(?P<step>\d{8,})\.(?P<stage>\d)-(?P<checksum>[0-9a-f]{16})\.npz")
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Stored:
    """A checkpoint's file on disk."""

    number: int
    content: bytes


class Store:
    """The checkpoints in a folder to which no other process writes."""

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
        """Return the newest checkpoint's file without checking it; None: there is none."""
        return next(reversed(self._files()), None)

    def newest_bytes(self) -> int:
        """Return the size of the newest checkpoint's file, in bytes; 0: there is none."""
        file = self.newest_file()
        return file.stat().st_size if file else 0

    def write(self, number: int, content: bytes) -> None:
        """Write a checkpoint from its bytes; see `stream`."""
        self.stream(number, lambda file: file.write(content))

    def stream(self, number: int, write: Callable[[Sink], object]) -> None:
        """Write a checkpoint piece by piece; its file is complete, or does not exist.

        Before that, all but the last KEPT - 1 others are removed, so that the disk never has to
        hold more than KEPT.

        Args:
            number: the checkpoint's number.
            write: writes the content to the file that it gets.

        Raises:
            OSError: it could not be written; the last KEPT - 1 others are still there.
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
        for other in self._files():  # an earlier checkpoint of the same place may differ in metrics
            if _number(other) == number and other != file:
                other.unlink()

    def set_aside_after(self, number: int) -> Path:
        """Move checkpoints with numbers above `number` aside; another run may have written them.

        Returns:
            their new folder, named by the present time.
        """
        place = self.folder / time.strftime("other-run-%Y%m%d-%H%M%S")
        make_folder(place)
        for file in self._files():
            if _number(file) > number:
                file.replace(place / file.name)
        return place

    def keep_newest(self) -> None:
        """Remove all checkpoints but the newest; do nothing if the disk fails."""
        with suppress(OSError):
            for older in self._files()[:-1]:
                older.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the unfinished files of a killed run."""
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
    """Return a file's content; None: it cannot be read, or was damaged and is now removed."""
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

"""Files that a fit writes on the chief alone, and that a script may load on all workers."""

import hashlib
import logging
import stat
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import keras

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.files import make_folder, write_whole

FILES = "fit (files of ModelCheckpoint)"
NO_FILE, NO_PLAIN_FILE = 0, -1
DIGEST_BYTES = 7  # of what workers can tell each other
log = logging.getLogger("trainer")
# The digest of each file that the disk here has not taken; that content is not sent to it again.
_not_taken: dict[Path, int] = {}


def share_files(callbacks: Sequence[Any], workers: Workers, *, goes_on: bool) -> list[Any]:
    """Give all workers what the chief's ModelCheckpoint has written; all of them call it.

    Called at each checkpoint, which remembers what was the best: when the chief's disk is lost, it
    has the file back from another worker.

    Args:
        callbacks: of the fit.
        workers: this one and the others.
        goes_on: whether the fit does so from a checkpoint; else what the chief lacks it has never
            written, and another worker's file is of an earlier run.

    Returns:
        those whose file no worker has.
    """
    writing = [one for one in callbacks if isinstance(one, keras.callbacks.ModelCheckpoint)]
    if len(set(workers.gather(len(writing), FILES))) > 1:
        log.debug("a ModelCheckpoint of some workers alone: its file is not given to the others")
        return []
    return [one for one in writing if not _share_file(Path(one.filepath), workers, goes_on)]


def _share_file(file: Path, workers: Workers, goes_on: bool) -> bool:  # noqa: FBT001
    """Give all workers a file; tell whether one has it, as far as can be known."""
    if "{" in str(file):  # on the chief's disk alone, as each has a name of its own
        return True
    digests = workers.gather(_digest(file), FILES)
    if NO_PLAIN_FILE in digests:  # a folder, as a ModelCheckpoint of a user's own may write
        return True
    holders = [rank for rank, digest in enumerate(digests) if digest != NO_FILE]
    if not holders:
        return False
    holder = holders[0]  # the chief, unless it has none
    if holder and not goes_on:
        return True
    if holder and len({digests[one] for one in holders}) > 1:
        log.warning("%s: worker 0 has lost it, and the others have different ones", file)
    if len(set(digests)) == 1:
        return True
    newest = digests[holder]
    is_wanted = newest not in (digests[workers.rank], _not_taken.get(file))
    if any(workers.gather(int(is_wanted), FILES)):
        given = file.read_bytes() if workers.rank == holder else None
        content = workers.broadcast(given, holder, FILES)
        if is_wanted and not _write(file, content):
            _not_taken[file] = newest
    return True


def _write(file: Path, content: bytes) -> bool:
    """Write another worker's file; tell whether the disk has taken it, which else is warned of."""
    try:
        make_folder(file.parent)
        write_whole(file, content, durable=False)
    except OSError as error:
        log.warning("%s could not be written here, as another worker has it: %s", file, error)
        return False
    return True


def _digest(file: Path) -> int:
    """Return a number that a file of other content has not; NO_FILE where there is none."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return NO_FILE
    if not stat.S_ISREG(status.st_mode):
        return NO_PLAIN_FILE
    return _digest_of(file, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=16)
def _digest_of(file: Path, *_: int) -> int:
    """Return it of a file, which is read once for each content that it has had."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=DIGEST_BYTES))
    return 1 + int.from_bytes(digest.digest())

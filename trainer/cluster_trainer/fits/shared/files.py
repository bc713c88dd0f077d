"""Files that a fit writes on the chief alone, and that a script may load on all workers.

What a ModelCheckpoint keeps as the best is shared at each checkpoint, so that it outlives any disk.
What else the chief's callbacks write stands at the same path on every worker once the callback's
hook is over, or at the path that the worker's own callback names: a later hook, or the script
after `fit`, may read it there.
"""

import glob
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

import keras

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.running import wants_each_batch
from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.fits.shared import written
from cluster_trainer.fits.shared.places import here, paths_of, renamed
from cluster_trainer.fits.shared.written import WORKING_FOLDER, Written, files_in, named_alike

FILES = "fit (files of ModelCheckpoint)"
OF_CALLBACKS = "fit (files of callbacks)"
LARGEST_BYTES, MOST_BYTES, MOST_FILES = 2**28, 2**30, 1000
"""Of one file, and of all that are given to the others in one fit."""
NO_FILE, NO_PLAIN_FILE = 0, -1
DIGEST_BYTES = 7  # of what workers can tell each other
log = logging.getLogger("trainer")


class ChiefsFiles:
    """The files that the chief's callbacks write in one fit, and every worker gets.

    A file that a worker's own callbacks have written is left as it is there. One that the chief
    removes is removed elsewhere, too, if it is still what the chief gave.

    Args:
        workers: this one and the others, who make the same calls in the same order.
        callbacks: as the script gives them to the fit; the chief alone has all that write.
        folder: the trainer's own on this worker, of which nothing is given.
        goes_on: whether the fit does so from a checkpoint; its callbacks may have written before.
    """

    def __init__(
        self, workers: Workers, callbacks: Sequence[Any], folder: Path, *, goes_on: bool
    ) -> None:
        self._workers, self._callbacks, self._folder = workers, callbacks, folder
        self._own = folder / WORKING_FOLDER
        self._written, self._goes_on = Written(self._own), goes_on
        self._given: dict[Path, int] = {}  # by the chief, with their digests
        self._renamed: dict[str, str] = {}  # how the chief's paths begin here
        self._not_taken: dict[Path, int] = {}  # by the disk here, which is not sent them again
        self._allowed: set[Path] = set()
        self._has_left_out, self._bytes = False, 0

    def share_best(self) -> list[Any]:
        """Give all workers what the chief's ModelCheckpoint has written; all of them call it.

        Called at each checkpoint, which remembers what was the best: a chief whose disk is lost
        gets the file back from another worker. But not at a fit's beginning, where another
        worker's file is of an earlier run.

        Returns:
            the callbacks whose file no worker has.
        """
        kind = keras.callbacks.ModelCheckpoint
        writing = [one for one in self._callbacks if isinstance(one, kind)]
        if len(set(self._workers.gather(len(writing), FILES))) > 1:
            log.debug("a ModelCheckpoint of some workers alone: its file is not given to others")
            return []
        return [one for one in writing if not self._share_best(Path(one.filepath))]

    def _share_best(self, file: Path) -> bool:
        """Give all workers a file; tell whether one has it, as far as can be known."""
        if "{" in str(file):  # on the chief's disk alone, as each has a name of its own
            return True
        digests = self._workers.gather(_digest(file), FILES)
        if NO_PLAIN_FILE in digests:  # a folder, as a ModelCheckpoint of a user's own may write
            return True
        holders = [rank for rank, digest in enumerate(digests) if digest != NO_FILE]
        if not holders:
            return False
        holder = holders[0]  # the chief, unless it has none
        if holder and not self._goes_on:
            return True
        if holder and len({digests[one] for one in holders}) > 1:
            log.warning("%s: worker 0 has lost it, and the others have different ones", file)
        if len(set(digests)) > 1:
            self._send(file, digests[holder], digests[self._workers.rank], holder, FILES)
        return True

    def _send(self, file: Path, newest: int, mine: int, holder: int, what: str) -> None:
        """Send a file to the workers that lack its content; all of them call it.

        Args:
            file: its path.
            newest: the digest of its content at the holder.
            mine: the same of what is here, or `newest` where nothing is wanted.
            holder: the rank of the worker that has it.
            what: the call is for.
        """
        is_wanted = newest not in (mine, self._not_taken.get(file))
        if any(self._workers.gather(int(is_wanted), what)):
            given = file.read_bytes() if self._workers.rank == holder else None
            content = self._workers.broadcast(given, holder, what)
            if is_wanted and not _write(file, content):
                self._not_taken[file] = newest

    def agree(self) -> tuple[bool, bool]:
        """Return whether all have the same callbacks, and whether one wants each batch."""
        names = ",".join(type(one).__name__ for one in self._callbacks).encode()
        digest = int.from_bytes(hashlib.blake2b(names, digest_size=DIGEST_BYTES).digest())
        are_alike = len(set(self._workers.gather(digest, OF_CALLBACKS))) == 1
        if are_alike and self._workers.members[0] == 0:
            held = paths_of([*filterfalse(_is_tensorboard, self._callbacks)])
            mine = {name: str(named_alike(path, self._own)) for name, path in held.items()}
            told = None if self._workers.rank else json.dumps(mine).encode()
            chiefs = json.loads(self._workers.broadcast(told, 0, OF_CALLBACKS))
            self._renamed = renamed(chiefs, mine)
        wants = bool(wants_each_batch(self._callbacks))
        return are_alike, max(self._workers.gather(int(wants), OF_CALLBACKS)) > 0

    def begin(self) -> None:
        """Note from now on what is written."""
        written.use(self._written)
        self._written.is_noting = True

    def end(self) -> None:
        """Note nothing more until the next hook."""
        self._written.is_noting = False

    def let_go(self) -> None:
        """Note nothing any more: the fit is over."""
        written.use(None)

    def share(self, *, is_last: bool = False) -> None:
        """Give all workers what the chief has written since the last time; all of them call it.

        Args:
            is_last: whether the fit ends, so that files are complete that TensorFlow writes.
        """
        if self._workers.members[0] != 0:  # the chief is missing, and nobody writes for it
            return
        with self._written.paused():
            self._share(is_last=is_last)

    def _share(self, *, is_last: bool) -> None:
        news = [*self._news(is_last=is_last)] if self._workers.rank == 0 else []
        if not self._workers.gather(len(news), OF_CALLBACKS)[0]:
            return
        content = json.dumps([[str(file), digest] for file, digest in news]).encode()
        told = self._workers.broadcast(content if news else None, 0, OF_CALLBACKS)
        for name, digest in json.loads(told):
            self._take(here(Path(name), self._renamed), digest)

    def _news(self, *, is_last: bool) -> Iterator[tuple[Path, int]]:
        """Yield the chief's files that the others have not, with their digests."""
        known = [named_alike(one, self._own) for one in self._known(is_last=is_last)]
        for path in [*self._written.files, *known]:
            for file in files_in(path):
                digest = NO_FILE if self._is_ours(file) else _digest(file)
                is_news = digest not in (NO_FILE, NO_PLAIN_FILE, self._given.get(file))
                if is_news and self._may_give(file):
                    yield file, digest
        for file in [one for one in self._given if _digest(one) == NO_FILE]:
            yield file, NO_FILE

    def _known(self, *, is_last: bool) -> Iterator[Path]:
        """Yield what Keras's own callbacks have written, by what they were told to."""
        for one in self._callbacks:
            if _is_tensorboard(one) and is_last:
                yield Path(one.log_dir)
            elif isinstance(one, keras.callbacks.CSVLogger) and self._goes_on:
                yield Path(one.filename)
            elif isinstance(one, keras.callbacks.ModelCheckpoint) and self._goes_on:
                yield from _matching(Path(one.filepath))

    def _is_ours(self, file: Path) -> bool:
        """Tell whether the trainer has written a file, into the worker's folder.

        The files of a script that runs in there, in its working folder, are the script's own.
        """
        above = Path(os.path.abspath(file)).parents  # noqa: PTH100 -- without `..`, but a link stays
        return self._folder in above and self._own not in above

    def _may_give(self, file: Path) -> bool:
        """Tell whether a file may be given, which counts then; say once of each which may not."""
        size = file.stat().st_size
        is_much = self._bytes + size > MOST_BYTES
        is_many = file not in self._allowed and len(self._allowed) >= MOST_FILES
        if not (size > LARGEST_BYTES or is_much or is_many):
            self._bytes += size
            self._allowed.add(file)
            return True
        if not self._has_left_out:
            self._has_left_out = True
            log.warning(
                "%s (%d MB) stays on this worker only, and so may other files: files of "
                "callbacks are copied to the other workers up to %d MB each, %d MB and %d "
                "files per fit",
                *(file, size >> 20, LARGEST_BYTES >> 20, MOST_BYTES >> 20, MOST_FILES),
            )
        return False

    def _take(self, file: Path, newest: int) -> None:
        before = self._given.pop(file, NO_FILE)
        if newest == NO_FILE:
            if self._workers.rank and before == _digest(file):
                file.unlink(missing_ok=True)
            return
        self._given[file] = newest
        mine = _digest(file) if self._workers.rank else newest
        # A file of its own callbacks' is its own; and what is no plain file is nobody's.
        is_kept = self._written.has(file) or mine == NO_PLAIN_FILE
        self._send(file, newest, newest if is_kept else mine, 0, OF_CALLBACKS)


def _is_tensorboard(callback: Any) -> bool:
    """Tell whether it is one: scripts give each worker's a folder, and no script reads it."""
    return isinstance(callback, keras.callbacks.TensorBoard)


def _matching(pattern: Path) -> list[Path]:
    """Return the files whose names a ModelCheckpoint may have made of its pattern."""
    name = re.sub(r"\{[^}]*\}", "*", glob.escape(pattern.name))
    return sorted(pattern.parent.glob(name))


def _write(file: Path, content: bytes) -> bool:
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
        if not stat.S_ISREG(status.st_mode):
            return NO_PLAIN_FILE
        return _digest_of(file, status.st_ino, status.st_size, status.st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return NO_FILE
    except OSError:  # it cannot be read, and so not be given
        return NO_PLAIN_FILE


@lru_cache(maxsize=2 * MOST_FILES)
def _digest_of(file: Path, *_: int) -> int:
    """Return it of a file, which is read once for each content that it has had."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=DIGEST_BYTES))
    return 1 + int.from_bytes(digest.digest())

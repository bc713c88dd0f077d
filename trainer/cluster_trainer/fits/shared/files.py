"""Copies the files that callbacks write on the chief alone to all workers.

A ModelCheckpoint's best model is copied at each checkpoint, so that it survives the loss of any
disk. Other files are copied when the hook that has written them is over. They get the same path on
every worker, or the path that the worker's own callback names. A later hook, or the script after
`fit`, may read them there.
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
from typing import TYPE_CHECKING, Any

import keras

from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.fits.shared import written_files
from cluster_trainer.fits.shared.places import here, paths_of, renamed
from cluster_trainer.fits.shared.written_files import WORKING_FOLDER, Written, files_in, named_alike

if TYPE_CHECKING:  # it imports TensorFlow, which nothing here needs
    from cluster_trainer.collectives.workers import Workers

FILES = "fit (files of ModelCheckpoint)"
OF_CALLBACKS = "fit (files of callbacks)"
LARGEST_BYTES, MOST_BYTES, MOST_FILES = 2**28, 2**30, 1000
"""The limits for one file, and for all files of one fit."""
NO_FILE, NO_PLAIN_FILE = 0, -1
DIGEST_BYTES = 7  # small enough for a number that workers exchange
log = logging.getLogger("trainer")


class ChiefsFiles:
    """The files that the chief's callbacks write in one fit, and that every worker gets.

    A file that a worker's own callbacks have written is not replaced there. If the chief removes a
    file, the others remove their copy, provided that it is unchanged.

    Args:
        workers: the workers, which make the same calls in the same order.
        callbacks: the callbacks that the script passes to the fit; those that only write run on
            the chief alone.
        folder: the trainer's own folder on this worker, of which nothing is copied.
        goes_on: whether the fit resumes from a checkpoint, so that its callbacks may have written
            before.
    """

    def __init__(
        self, workers: "Workers", callbacks: Sequence[Any], folder: Path, *, goes_on: bool
    ) -> None:
        self._workers, self._callbacks, self._folder = workers, callbacks, folder
        self._own = folder / WORKING_FOLDER
        self._written, self._goes_on = Written(self._own), goes_on
        self._given: dict[Path, int] = {}  # the chief's files, with their digests
        self._renamed: dict[str, str] = {}  # beginnings of the chief's paths, and those here
        self._not_taken: dict[Path, int] = {}  # files that could not be written, not sent again
        self._allowed: set[Path] = set()
        self._has_left_out, self._bytes = False, 0

    def share_best(self) -> list[Any]:
        """Give all workers the files of the chief's ModelCheckpoint; all workers call this.

        It is called at each checkpoint, which records the best value. So a chief whose disk is lost
        gets the file back from another worker. In a fit that has not resumed, only the chief's file
        is given, because another worker's file may belong to an earlier run.

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
        """Give all workers a file; return False if certainly no worker has it."""
        if "{" in str(file):  # each epoch's file has its own name, and stays on the chief's disk
            return True
        digests = self._workers.gather(_digest(file), FILES)
        if NO_PLAIN_FILE in digests:  # a folder, which a user's own ModelCheckpoint may write
            return True
        holders = [rank for rank, digest in enumerate(digests) if digest != NO_FILE]
        if not holders:
            return False
        holder = holders[0]  # the chief, unless it lacks the file
        if holder and not self._goes_on:
            return True
        if holder and len({digests[one] for one in holders}) > 1:
            log.warning("%s: worker 0 has lost it, and the others have different ones", file)
        if len(set(digests)) > 1:
            self._send(file, digests[holder], digests[self._workers.rank], holder, FILES)
        return True

    def _send(self, file: Path, newest: int, mine: int, holder: int, what: str) -> None:
        """Send a file to the workers that lack its content; all workers call this.

        Args:
            file: the file's path.
            newest: the digest of the holder's file.
            mine: the digest of this worker's file; `newest`, if this worker does not want it.
            holder: the rank of the worker that sends the file.
            what: the purpose of the exchange, in words.
        """
        is_wanted = newest not in (mine, self._not_taken.get(file))
        if any(self._workers.gather(int(is_wanted), what)):
            given = file.read_bytes() if self._workers.rank == holder else None
            content = self._workers.broadcast(given, holder, what)
            if is_wanted and not _write(file, content):
                self._not_taken[file] = newest

    def agree(self) -> tuple[bool, bool]:
        """Return whether all workers have the same callbacks, and whether any needs each batch.

        All workers call this.
        """
        from cluster_trainer.engine.running import wants_each_batch  # noqa: PLC0415  of TensorFlow

        are_alike = self.are_alike()
        wants = bool(wants_each_batch(self._callbacks))
        return are_alike, max(self._workers.gather(int(wants), OF_CALLBACKS)) > 0

    def are_alike(self) -> bool:
        """Tell whether all workers have the same callbacks; all workers call this."""
        names = ",".join(type(one).__name__ for one in self._callbacks).encode()
        digest = int.from_bytes(hashlib.blake2b(names, digest_size=DIGEST_BYTES).digest())
        are_alike = len(set(self._workers.gather(digest, OF_CALLBACKS))) == 1
        if are_alike and self._workers.members[0] == 0:
            held = paths_of([*filterfalse(_is_tensorboard, self._callbacks)])
            mine = {name: str(named_alike(path, self._own)) for name, path in held.items()}
            told = None if self._workers.rank else json.dumps(mine).encode()
            chiefs = json.loads(self._workers.broadcast(told, 0, OF_CALLBACKS))
            self._renamed = renamed(chiefs, mine)
        return are_alike

    def begin(self) -> None:
        """Begin to note files that are written."""
        written_files.use(self._written)
        self._written.is_noting = True

    def end(self) -> None:
        """Note nothing more until the next hook."""
        self._written.is_noting = False

    def let_go(self) -> None:
        """Stop noting files, because the fit is over."""
        written_files.use(None)

    def share(self, *, is_last: bool = False) -> None:
        """Give all workers the chief's new and changed files; all workers call this.

        Args:
            is_last: whether the fit ends. Then TensorBoard's files are complete, and are given.
        """
        if self._workers.members[0] != 0:  # the chief is missing, and no other worker writes for it
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
        """Yield the chief's new, changed and removed files, with their digests."""
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
        """Yield the files that the arguments of Keras's own callbacks name."""
        for one in self._callbacks:
            if _is_tensorboard(one) and is_last:
                yield Path(one.log_dir)
            elif isinstance(one, keras.callbacks.CSVLogger) and self._goes_on:
                yield Path(one.filename)
            elif isinstance(one, keras.callbacks.ModelCheckpoint) and self._goes_on:
                yield from _matching(Path(one.filepath))

    def _is_ours(self, file: Path) -> bool:
        """Tell whether a file in the worker's folder is the trainer's own.

        The script's working folder may be in the worker's folder; its files are the script's own.
        """
        above = Path(os.path.abspath(file)).parents  # noqa: PTH100 -- without `..`, but a link stays
        return self._folder in above and self._own not in above

    def _may_give(self, file: Path) -> bool:
        """Tell whether a file may be copied, and count it; warn once about files that may not."""
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
        # Files that this worker's own callbacks have written stay. Only plain files are replaced.
        is_kept = self._written.has(file) or mine == NO_PLAIN_FILE
        self._send(file, newest, newest if is_kept else mine, 0, OF_CALLBACKS)


def _is_tensorboard(callback: Any) -> bool:
    """Tell whether a callback is Keras's TensorBoard, whose files no script reads."""
    return isinstance(callback, keras.callbacks.TensorBoard)


def _matching(pattern: Path) -> list[Path]:
    """Return the existing files that a ModelCheckpoint may have named by its pattern."""
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
    """Return a digest of a file, above 0; NO_FILE or NO_PLAIN_FILE if it cannot be copied."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            return NO_PLAIN_FILE
        return _digest_of(file, status.st_ino, status.st_size, status.st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return NO_FILE
    except OSError:  # it cannot be read, so it cannot be copied
        return NO_PLAIN_FILE


@lru_cache(maxsize=2 * MOST_FILES)
def _digest_of(file: Path, *_: int) -> int:
    """Return a file's digest; it is read again only if its inode, size or time have changed."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=DIGEST_BYTES))
    return 1 + int.from_bytes(digest.digest())

"""Files that a fit has written on the chief alone, and that a script may load on all workers."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.files import make_folder, write_whole

FILES = "fit (files of ModelCheckpoint)"
log = logging.getLogger("trainer")


def share_files(callbacks: Sequence[Any], workers: Workers, *, is_chief: bool) -> None:
    """Give all workers what the chief's ModelCheckpoint has written; all of them call it.

    Args:
        callbacks: of the fit, which has ended.
        workers: this one and the others.
        is_chief: whether this one's has written.
    """
    writing = [one for one in callbacks if isinstance(one, keras.callbacks.ModelCheckpoint)]
    if len(set(workers.gather(len(writing), FILES))) > 1:
        log.info("a ModelCheckpoint of some workers alone: its file is not given to the others")
        return
    for callback in writing:
        _share_file(Path(callback.filepath), workers, is_chief=is_chief)


def _share_file(file: Path, workers: Workers, *, is_chief: bool) -> None:
    if "{" in file.name:
        log.info("%s: only on the chief's disk, as each has a name of its own", file)
        return
    is_here = workers.gather(int(file.is_file()), FILES)
    if is_here[0] and not all(is_here):
        mine = file.read_bytes() if is_chief else None
        content = workers.broadcast(mine, 0, FILES)
        if not is_here[workers.rank]:
            make_folder(file.parent)
            write_whole(file, content, durable=False)

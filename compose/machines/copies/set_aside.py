"""Moves files that a machine no longer has out of a worker's folder on this machine.

Otherwise rotated checkpoints would pile up between the current ones, and files of an earlier run
would look like those of this one. They are moved and not deleted: the user may have written them,
or they may be the only copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase

from local_cluster.run.folder import EARLIER, LOG, make_new
from local_cluster.shared_folder import NEW, SharedFolder

HERE_ONLY = (LOG, f"{NEW}*")
"""Files that do not come from the worker's folder: its output, and files that are being written."""


def set_aside(
    run: SharedFolder, service: str, fetched: Collection[str], without: Sequence[str]
) -> tuple[int, SharedFolder | None]:
    """Move all files and folders that were not fetched to the run's folder `earlier`.

    Args:
        run: the run's folder on this machine.
        service: the worker's name, which is also its folder.
        fetched: the paths of all files and folders that were fetched, below the run's folder.
        without: the names that were not asked for; these files stay.

    Returns:
        how many files and folders were moved, and the folder in which they are now.

    Raises:
        OSError: one could not be moved.
    """
    gone = [*_gone(run, service, fetched, (*HERE_ONLY, *without))]
    if not gone:
        return 0, None
    earlier = run.below(EARLIER)
    earlier.make()
    now = datetime.now()
    target = earlier.below(make_new(earlier, f"{now:%Y%m%d-%H%M%S}-fetch"))
    for above, name in gone:
        with suppress(FileNotFoundError):  # another command has moved it
            run.below(above).move(name, target.below(above))
    return len(gone), target


def _gone(
    run: SharedFolder, above: str, fetched: Collection[str], stay: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield each file or folder to move: the folder that it is in, and its name."""
    folder = run.below(above)
    for name in folder.names():
        path = f"{above}/{name}"
        if any(fnmatchcase(name, pattern) for pattern in stay):
            continue
        if path not in fetched:
            yield above, name
        elif folder.has_folder(name):
            yield from _gone(run, path, fetched, stay)

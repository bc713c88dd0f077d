"""The mark of a script that has ended well: its next start begins anew.

A process cannot know with which code it ends: `sys.exit(1)` looks like an end to what runs at exit.
So it writes the mark under another name, and asks the entrypoint, which knows the command's exit
code, to give it its own name after code 0 (END_MARKS). Without an entrypoint it does so itself.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.files import write_whole

VARIABLE = "END_MARKS"
"""The entrypoint's: a file that lists marks, one path a line. See `entrypoint/supervision`."""
FILE, PENDING = "ENDED", ".pending"
BEGINNING = "the first fit"
log = logging.getLogger("trainer")


def mark(folder: Path, workers: Workers, environ: Mapping[str, str]) -> None:
    """Mark that the script has ended well here, with those who were there (MIN_WORKERS).

    Args:
        folder: the worker's own.
        workers: this one and the others.
        environ: END_MARKS.
    """
    list_of_marks = environ.get(VARIABLE)
    file = folder / (f"{FILE}{PENDING}" if list_of_marks else FILE)
    try:
        write_whole(file, json.dumps(workers.members).encode(), durable=False)
        if list_of_marks:
            with Path(list_of_marks).open("a") as marks:
                marks.write(f"{file}\n")
    except OSError:
        log.warning("the script's end could not be noted in %s", folder)


def has_ended(folder: Path, workers: Workers) -> bool:
    """Tell whether the script has ended on all workers that were there; all workers call it.

    The chief's mark says who that was: those who were missing have none.
    """
    file = folder / FILE
    have_mark = workers.gather(int(file.exists()), BEGINNING)
    if not have_mark[0]:
        return False
    text = workers.broadcast(file.read_bytes() if workers.rank == 0 else None, 0, BEGINNING)
    members = json.loads(text) if text.strip() else workers.members  # of an earlier version: all
    of_members = [
        one for place, one in zip(workers.members, have_mark, strict=True) if place in members
    ]
    return all(of_members)


def forget(folder: Path, workers: Workers) -> None:
    """Remove the mark, once all workers have seen theirs; all of them call it.

    One that is killed before that begins anew again, as all the others do.
    """
    workers.gather(0, BEGINNING)
    (folder / FILE).unlink(missing_ok=True)

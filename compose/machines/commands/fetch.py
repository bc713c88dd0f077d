"""`fetch`: the results of all workers, from their machines into the run's folder here."""

from __future__ import annotations

from local_cluster.messages import EXIT_ERROR, complain, say
from machines import results
from machines.kept import Kept
from machines.machine import at_once


def fetch(kept: Kept, *without: str) -> int:
    """Copy what the workers have written; return 1 if some of it could not be copied.

    Args:
        kept: the cluster.
        without: names of files and folders that are left out.
    """
    kept.folder.make()
    found = at_once(lambda pair: results.fetch(pair[0], pair[1], kept, without), kept.places)
    problems = [problem for problem in found if problem]
    for problem in problems:
        complain(problem)
    if not problems:
        say(f"fetched the results of {len(found)} worker(s) to {kept.folder.path}")
    return EXIT_ERROR if problems else 0

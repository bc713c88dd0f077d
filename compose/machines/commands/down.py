"""`down`: stops the workers and removes them from their machines. Their files stay there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from local_cluster.messages import EXIT_ERROR, complain, say
from machines import cluster_record as files
from machines.cluster_record import Kept
from machines.machine import at_once
from machines.workers import containers


def down(kept: Kept, environ: Mapping[str, str]) -> int:
    """Stop and remove all workers; return 1 if one could not be removed.

    The record stays until all are removed, so that the command can be repeated.

    Raises:
        EndError: another command is changing the cluster.
    """
    with files.held(kept, environ):
        those = kept.left
        containers.stop_all(those)
        found = at_once(containers.remove, those)
        left = [one.machine.index for one, problem in zip(those, found) if problem]
        if left:
            removed = tuple(one.index for one in kept.machines if one.index not in left)
            files.write(replace(kept, removed=removed), environ)
        else:
            files.forget(environ)
    for problem in filter(None, found):
        complain(problem)
    if left:
        file = files.file_of(environ)
        complain(
            "`make down` removes the rest once these machines answer again. If they are gone for "
            f"good, remove the record of the cluster: {file}"
        )
        return EXIT_ERROR
    names = ", ".join(one.name for one in kept.machines)
    fetch = f"`make fetch NAME={kept.run}` copies them"
    say(f"removed the workers from {names}; results and data stay there; {fetch}")
    return 0

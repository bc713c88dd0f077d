"""`down`: stops the workers and removes them from their machines; what they wrote stays there."""

from __future__ import annotations

from collections.abc import Mapping

from local_cluster.messages import EXIT_ERROR, complain, say
from machines import kept as files
from machines import workers
from machines.commands.stop import stop_all
from machines.kept import Kept
from machines.machine import at_once


def down(kept: Kept, environ: Mapping[str, str]) -> int:
    """Stop and remove all workers; return 1 if one could not be."""
    stop_all(kept, kept.machines)
    found = at_once(lambda one: workers.remove(one, kept.project), kept.machines)
    problems = [problem for problem in found if problem]
    for problem in problems:
        complain(problem)
    files.forget(environ)
    if not problems:
        names = ", ".join(one.name for one in kept.machines)
        say(f"removed the workers from {names}; results and data stay there")
    return EXIT_ERROR if problems else 0

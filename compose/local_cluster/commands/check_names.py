"""`names`: make asks, before it builds anything, whether all that it was given means something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.names import unknown_names, unknown_settings

RUNS = frozenset({"up-local", "resume", "data", "data-sample"})


def check_names(environ: Mapping[str, str], goals: Sequence[str], given: Sequence[str]) -> int:
    """Look at the names on make's command line, and at the TRAINER_ variables.

    Raises:
        EndError: some of them mean nothing; a sentence each.
    """
    problems = unknown_names(goals, given)
    if RUNS.intersection(goals):
        rest = {name: text for name, text in environ.items() if name not in given}
        problems += unknown_settings(rest)
    if problems:
        raise EndError(EXIT_CONFIGURATION, *problems)
    return 0

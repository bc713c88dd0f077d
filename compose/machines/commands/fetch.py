"""`fetch`: copies the results of all workers into the run's folder on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from local_cluster.messages import EXIT_ERROR, complain, say
from local_cluster.settings.given_variables import GivenVariables
from local_cluster.shared_folder import SharedFolder, refusal
from machines.cluster_record import Kept
from machines.copies import results
from machines.machine import at_once


def fetch(kept: Kept, environ: Mapping[str, str], *without: str) -> int:
    """Copy the workers' results; return 1 if some could not be copied.

    Args:
        kept: the cluster.
        environ: all variables; with sudo, they name the user to whom the results belong.
        without: names of files and folders to leave out.

    Raises:
        EndError: the folder of all runs on this machine cannot be made or written.
    """
    try:
        kept.folder.root.mkdir(parents=True, exist_ok=True)
        kept.folder.make()
    except OSError as error:
        raise refusal(kept.folder, error) from error
    found = at_once(lambda pair: results.fetch(pair[0], pair[1], kept, without), kept.places)
    hand_over(kept, environ)
    problems = [problem for problem in found if problem]
    for problem in problems:
        complain(problem)
    if not problems:
        say(f"fetched the results of {len(found)} worker(s) to {kept.folder.path}")
    return EXIT_ERROR if problems else 0


def hand_over(kept: Kept, environ: Mapping[str, str]) -> None:
    """With sudo, give the fetched results to the user who called it."""
    if os.getuid() == 0:
        user = GivenVariables(environ).user()
        runs = SharedFolder(kept.folder.root)
        runs.hand_over(kept.run, int(user.uid), int(user.gid))

"""Shows a run in the terminal until it ends, and prints a summary with the paths of its results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Callable

from local_cluster.commands.up import is_verbose
from local_cluster.messages import EndError, say, write
from local_cluster.run.lines import ScreenOptions
from local_cluster.run.summary import TOLD_TO_STOP, print_table
from machines import cluster_record
from machines.cluster_record import Kept
from machines.watching.watch import Watch
from machines.workers import containers


def watch_of(known: Kept, environ: Mapping[str, str], tail: int | None = None) -> Watch:
    """Return a watch that shows a cluster, and stops it if a worker fails.

    Args:
        known: the cluster.
        environ: all variables.
        tail: the number of earlier lines to show for each worker; None: all.
    """
    return Watch(
        known.containers,
        ScreenOptions(shows_all=is_verbose(environ)),
        cluster_record.is_current(environ),
        tail=tail,
        stop=_stopping(known, environ),
    )


def _stopping(known: Kept, environ: Mapping[str, str]) -> Callable[[], list[str]]:
    """Return a function that stops a cluster's workers and returns the error messages.

    It does not stop them if another command is changing the cluster, or has changed it.
    """

    def stop() -> list[str]:
        try:
            with cluster_record.held(known, environ):
                return containers.stop_all(known.containers)
        except EndError as error:
            return [*error.sentences]

    return stop


def report(known: Kept, code: int, seconds: int | None = None) -> None:
    """Print how a run ended, and where its results are."""
    write(sys.stdout, b"\n")
    if code in TOLD_TO_STOP:
        say("stopped; `make resume` resumes the run")
    elif code:
        say(f"failed with exit code {code}")
    else:
        number = len(known.hosts)
        say(f"done: {number} worker(s)" + (f", {seconds} s" if seconds is not None else ""))
    where = f"on the machines; `make fetch` copies them to {known.folder.path}"
    how = "`make status`, `make logs`; `make down` removes them"
    print_table([("results", where), ("workers", how)])

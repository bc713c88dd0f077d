"""`attach` and `logs`: show the output of a cluster's workers."""

from __future__ import annotations

from collections.abc import Mapping

from local_cluster.messages import complain, say
from local_cluster.run.lines import ScreenOptions
from machines import cluster_record as files
from machines.cluster_record import Kept
from machines.watching.in_terminal import report, watch_of
from machines.watching.watch import Watch

LINES_BEFORE = 10


def attach(kept: Kept, environ: Mapping[str, str]) -> int:
    """Show a cluster from now until it ends, as `up` does; return the exit code."""
    say(f"run {kept.run} on {', '.join(host.target for host in kept.hosts)}")
    if not kept.is_started:
        complain("the start was interrupted, and workers are missing; `make resume` starts all")
    watch = watch_of(kept, environ, LINES_BEFORE)
    code = watch.to_the_end()
    if not watch.was_left:
        report(kept, code)
    return code


def logs(kept: Kept, environ: Mapping[str, str]) -> int:
    """Show all lines of all workers, from the first on, until they end; return the exit code.

    If a worker fails, the others are not stopped.
    """
    screen = ScreenOptions(shows_all=True)
    return Watch(kept.containers, screen, files.is_current(environ)).to_the_end()

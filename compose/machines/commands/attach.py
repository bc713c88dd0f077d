"""`attach` and `logs`: the lines of workers that run, or have ended, on machines."""

from __future__ import annotations

from collections.abc import Mapping

from local_cluster.commands.up import is_verbose
from local_cluster.messages import complain, say
from local_cluster.run.lines import ScreenOptions
from machines import kept as files
from machines.commands.up import report, stopping
from machines.kept import Kept
from machines.watch import Watch

LINES_BEFORE = 10


def attach(kept: Kept, environ: Mapping[str, str]) -> int:
    """Show a cluster from now until it ends, as `up` does; return the exit code."""
    say(f"run {kept.run} on {', '.join(host.target for host in kept.hosts)}")
    screen = ScreenOptions(shows_all=is_verbose(environ))
    if not kept.is_started:
        complain("the start was cut off, and workers are missing; `make resume` starts all again")
    is_current, stop = files.is_current(environ), stopping(kept, environ)
    watch = Watch(kept.machines, kept.project, screen, is_current, tail=LINES_BEFORE, stop=stop)
    code = watch.to_the_end()
    if not watch.was_left:
        report(len(kept.hosts), kept.folder, code)
    return code


def logs(kept: Kept, environ: Mapping[str, str]) -> int:
    """Show all lines of all workers, from the first on, until they end; return the exit code.

    It only reads: when a worker fails, the others go on.
    """
    screen = ScreenOptions(shows_all=True)
    return Watch(kept.machines, kept.project, screen, files.is_current(environ)).to_the_end()

"""The commands for a cluster on several machines, one in each file; `of` returns them all."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from typing import Callable

from local_cluster.commands import report as report_here
from local_cluster.commands import resume as resume_here
from local_cluster.commands import tensorboard as tensorboard_here
from machines import earlier_run
from machines.cluster_record import Kept
from machines.commands import attach, down, fetch, fetch_records, replace, status, stop
from machines.commands.up import up as up_on_machines
from machines.workers.replacement import Replacement

ONLY = ("attach", "fetch", "replace")
"""The commands that a local cluster does not have."""
NAMES = (*ONLY, "stop", "resume", "status", "down", "logs", "ps", "tensorboard", "report")
"""The commands that apply to the cluster on several machines, if the project has one."""
Start = Callable[[Mapping[str, str]], int]


def of(
    kept: Kept,
    given: argparse.Namespace,
    shell: Mapping[str, str],
    environ: Mapping[str, str],
    up: Start,
) -> Mapping[str, Callable[[], int]]:
    """Return the commands of a cluster, by their names.

    Args:
        kept: the cluster.
        given: the command and its arguments.
        shell: the variables of the shell.
        environ: these variables, and those that .env adds.
        up: starts a cluster.
    """
    run = {"RUNS_DIR": kept.runs, "RUN_NAME": kept.run}

    def resume() -> int:
        if given.worker:
            return stop.start_again(kept, given.worker, environ)
        return resume_here.resume({**run, **_set(environ)}, shell, "", up)

    def with_another() -> int:
        return replace.replace(kept, (given.host, given.by), again)

    def again(hosts: str, replacement: Replacement | None) -> int:
        changed = {**run, "HOSTS": hosts}
        start = functools.partial(up_on_machines, replacement=replacement)
        return resume_here.resume({**environ, **changed}, {**shell, **changed}, "", start)

    def report() -> int:
        fetch_records.fetch_records(kept, environ)
        report_here.report({**run, **_set(environ)})

    def tensorboard() -> int:
        fetch_records.fetch_records(kept, environ)
        fetch_records.keep_fetching(kept, environ)
        tensorboard_here.tensorboard({**run, **_set(environ)})

    return {
        "attach": lambda: attach.attach(kept, environ),
        "logs": lambda: attach.logs(kept, environ),
        "fetch": lambda: fetch.fetch(earlier_run.chosen(kept, environ), environ),
        "stop": lambda: stop.stop(kept, given.worker, environ),
        "resume": resume,
        "replace": with_another,
        "status": lambda: status.status(kept, as_json=given.json),
        "ps": lambda: status.status(kept, as_json=False),
        "down": lambda: down.down(kept, environ),
        "report": report,
        "tensorboard": tensorboard,
    }


def _set(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if text}

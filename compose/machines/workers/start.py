"""Starts the workers: all of them, or none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from local_cluster.docker_engine import SERVICE, START
from local_cluster.messages import EXIT_ERROR, EndError, say
from machines.checks.facts import Facts
from machines.machine import Machine, at_once, container_of, last_line
from machines.workers.containers import END_SECONDS
from machines.workers.docker_run import Start, command_of

START_SECONDS = 120


class NoneIsLeftError(EndError):
    """A worker did not start, and no container of this start is left."""


def start_all(start: Start, told: Sequence[Facts]) -> None:
    """Start all workers, or none.

    Raises:
        NoneIsLeftError: a worker does not start, and the others are removed.
        EndError: a worker does not start, and another one could not be removed.
    """
    names = ", ".join(one.machine.name for one in told)
    say(f"{len(told)} worker(s) of {start.image.name} on {names}, run {start.settings.run_name}")
    found = [problem for problem in at_once(lambda one: _start(start, one), told) if problem]
    if found:
        removed = at_once(lambda one: _remove(one.machine, start), told)
        left = [problem for problem in removed if problem]
        raise (EndError if left else NoneIsLeftError)(EXIT_ERROR, *found, *left)


def _start(start: Start, facts: Facts) -> str:
    """Start a machine's worker, detached; return an error message, or "".

    The docker command runs on this machine, so no secret is in a command line of the other one.
    """
    environ = {**os.environ, **start.environ, "CLUSTER_TOKEN": start.token}
    ended = facts.machine.engine.ask(
        *command_of(start, facts), environ=environ, seconds=START_SECONDS
    )
    if ended.returncode:
        return f"{facts.machine.name}: the worker does not start: {last_line(ended.stderr)}"
    return ""


def _remove(machine: Machine, start: Start) -> str:
    """Remove the container that this start has created; return an error message, or "".

    It goes by the start's label, because a container of the same name may not be this start's, and
    by the worker's, because a machine may have several.
    """
    labels = (f"{START}={start.name}", f"{SERVICE}={machine.service}")
    chosen = " ".join(f"--filter {shlex.quote(f'label={one}')}" for one in labels)
    # Not through a pipe, whose exit code would not tell that `docker ps` has failed.
    remove = (
        f"made=$(docker ps --all --quiet {chosen}) || exit; "
        '[ -z "$made" ] || docker rm --force $made'
    )
    ended = machine.ask(remove, seconds=END_SECONDS)
    if not ended.returncode:
        return ""
    by_hand = f"docker rm --force {container_of(machine, start.settings.project)}"
    return f"{machine.name}: {last_line(ended.stderr)}; there, `{by_hand}` removes its worker"

"""Stops, restarts and removes workers, which are containers on their machines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from local_cluster.docker_engine import is_gone
from machines.machine import SSH_FAILED, Machine, at_once, container_of, last_line

END_SECONDS = 60
"""The time that `docker stop` may take in addition to the workers' grace period."""
RUNNING = ("running", "restarting", "paused")


def stop(machine: Machine, project: str) -> str:
    """Ask a machine's worker to stop, and wait until it has ended; return an error message, or "".

    A missing container is no error: the start was interrupted, or the worker was removed.
    """
    name = container_of(machine, project)
    stopping = f"docker stop {shlex.quote(name)}"
    ended = machine.ask(stopping, seconds=_grace(machine, name) + END_SECONDS)
    if not ended.returncode or is_gone(ended.stderr):
        return ""
    return f"{machine.name}: {last_line(ended.stderr)}"


def stop_all(machines: Sequence[Machine], project: str) -> list[str]:
    """Stop the workers of all machines at the same time; return a sentence for each failure."""
    found = at_once(lambda one: stop(one, project), machines)
    return [problem for problem in found if problem]


def _grace(machine: Machine, container: str) -> float:
    ended = machine.docker("inspect", "--format", "{{.Config.StopTimeout}}", container)
    text = ended.stdout.strip()
    return float(text) if text.isdecimal() else 0.0


def is_running(machine: Machine, project: str) -> bool | None:
    """Tell whether a machine's worker runs, is paused or restarts; None: it is unknown."""
    name = container_of(machine, project)
    ended = machine.docker("inspect", "--format", "{{.State.Status}}", name)
    if ended.returncode and not is_gone(ended.stderr):
        return None
    return ended.stdout.strip() in RUNNING


def start_again(machine: Machine, project: str) -> str:
    """Start a worker that has ended; return an error message, or ""."""
    ended = machine.docker("start", container_of(machine, project))
    if not ended.returncode:
        return ""
    if is_gone(ended.stderr):
        return f"{machine.name}: {machine.service} has no container; `make resume` starts all again"
    return f"{machine.name}: {last_line(ended.stderr)}"


def remove(machine: Machine, project: str) -> str:
    """Remove a machine's worker; return an error message, or ""."""
    name = container_of(machine, project)
    ended = machine.docker("rm", "--force", name)
    if not ended.returncode or is_gone(ended.stderr):
        return ""
    by_hand = f"`docker --host {machine.engine.host} rm --force {name}` removes its worker"
    when = "when it answers again, " if ended.returncode == SSH_FAILED else ""
    return f"{machine.name}: {last_line(ended.stderr)}; {when}{by_hand}"

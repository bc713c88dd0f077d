"""Stops, restarts and removes workers, which are containers on their machines."""

from __future__ import annotations

from collections.abc import Sequence

from local_cluster.docker_engine import is_gone
from machines.machine import SSH_FAILED, at_once, last_line
from machines.own_container import OwnContainer

END_SECONDS = 60
"""The time that `docker stop` may take in addition to the workers' grace period."""
RUNNING = ("running", "restarting", "paused")


def stop(one: OwnContainer) -> str:
    """Ask a worker to stop, and wait until it has ended; return an error message, or "".

    A missing container is no error: the start was interrupted, or the worker was removed.
    """
    ended = one.ask('docker stop "$id"', seconds=_grace(one) + END_SECONDS)
    if not ended.returncode or is_gone(ended.stderr):
        return ""
    return f"{one.machine.name}: {last_line(ended.stderr)}"


def stop_all(those: Sequence[OwnContainer]) -> list[str]:
    """Stop all workers at the same time; return a sentence for each failure."""
    return [problem for problem in at_once(stop, those) if problem]


def _grace(one: OwnContainer) -> float:
    ended = one.ask('docker inspect --format "{{.Config.StopTimeout}}" "$id"')
    text = ended.stdout.strip()
    return float(text) if text.isdecimal() else 0.0


def is_running(one: OwnContainer) -> bool | None:
    """Tell whether a worker runs, is paused or restarts; None: it is unknown."""
    ended = one.ask('docker inspect --format "{{.State.Status}}" "$id"')
    if ended.returncode and not is_gone(ended.stderr):
        return None
    return ended.stdout.strip() in RUNNING


def start_again(one: OwnContainer) -> str:
    """Start a worker that has ended; return an error message, or ""."""
    machine = one.machine
    ended = one.ask('docker start "$id"')
    if not ended.returncode:
        return ""
    if is_gone(ended.stderr):
        return f"{machine.name}: {machine.service} has no container; `make resume` starts all again"
    return f"{machine.name}: {last_line(ended.stderr)}"


def remove(one: OwnContainer) -> str:
    """Remove a worker; return an error message, or ""."""
    machine = one.machine
    ended = one.ask('docker rm --force "$id"')
    if not ended.returncode or is_gone(ended.stderr):
        return ""
    by_hand = f"`docker --host {machine.engine.host} rm --force {one.name}` removes its worker"
    when = "when it answers again, " if ended.returncode == SSH_FAILED else ""
    return f"{machine.name}: {last_line(ended.stderr)}; {when}{by_hand}"

"""Deals with the workers of a project's last start, before and during the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, complain, say
from machines import kept
from machines.kept import Kept
from machines.machine import Machine, at_once
from machines.workers import containers


def settle(environ: Mapping[str, str]) -> None:
    """Make sure that no worker of the project's last start runs; stop those of one cut off.

    Raises:
        EndError: a cluster runs, or a worker cannot be stopped.
    """
    known = kept.read(environ)
    if not known:
        return
    running = at_once(lambda one: containers.is_running(one, known.project), known.machines)
    those = [one for one, runs in zip(known.machines, running) if runs]
    if not those:
        return
    if known.is_started or len(those) == len(known.machines):  # it was cut off after the last
        kept.write(replace(known, is_started=True), environ)
        where = ", ".join(one.name for one in those)
        how = "`make attach` shows it, `make stop` stops it at a checkpoint"
        told = f"a cluster of the project {known.project} runs on {where}: {how}."
        raise EndError(EXIT_CONFIGURATION, told)
    _stop_cut_off(known, those)


def _stop_cut_off(known: Kept, those: Sequence[Machine]) -> None:
    """Stop workers that wait for others, which nobody starts: each start has its own token.

    Raises:
        EndError: one cannot be stopped.
    """
    names = ", ".join(f"{one.service} on {one.name}" for one in those)
    say(f"an earlier start was cut off; stopping {names}")
    if found := containers.stop_all(those, known.project):
        raise EndError(EXIT_ERROR, *found)


def remove(known: Kept) -> None:
    """Remove the workers of the project's last start, which have ended."""
    found = at_once(lambda one: containers.remove(one, known.project), known.machines)
    for problem in filter(None, found):
        complain(problem)

"""Stops and removes the workers of a project's last start, before the next start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, complain, say
from machines import cluster_record
from machines.cluster_record import Kept
from machines.hosts_setting import Host
from machines.machine import Machine, at_once
from machines.own_container import OwnContainer
from machines.workers import containers


def settle(hosts: Sequence[Host], environ: Mapping[str, str]) -> None:
    """Make sure that no worker of the project's last start runs.

    If that start was interrupted before all workers were started, the started ones are stopped.
    If all workers run, the next start is refused.

    Args:
        hosts: the machines of the next start.
        environ: all variables.

    Raises:
        EndError: the cluster runs or may run, or a worker cannot be stopped.
    """
    known = cluster_record.read(environ)
    if not known:
        return
    left = known.left
    running = at_once(containers.is_running, left)
    those = [one for one, runs in zip(left, running) if runs]
    if those and (known.is_started or len(those) == len(known.machines)):
        _refuse_running(known, those, environ)
    away = [one.machine for one, runs in zip(left, running) if runs is None]
    _refuse_away(known, away, hosts)
    if those:
        _stop_cut_off(those)


def _refuse_running(known: Kept, those: Sequence[OwnContainer], environ: Mapping[str, str]) -> None:
    if not known.is_started:  # the start was interrupted after the last worker was started
        cluster_record.write(replace(known, is_started=True), environ)
    where = ", ".join(one.machine.name for one in those)
    how = "`make attach` shows it, `make stop` stops it at a checkpoint"
    told = f"a cluster of the project {known.project} runs on {where}: {how}."
    raise EndError(EXIT_CONFIGURATION, told)


def _refuse_away(known: Kept, away: Sequence[Machine], hosts: Sequence[Host]) -> None:
    """Refuse to leave a machine that does not answer, because its worker may still run.

    Machines that the next start uses again are checked later.

    Raises:
        EndError: the next start does not use a machine that does not answer.
    """
    targets = [host.target for host in hosts]
    sentences = [
        f"{one.name} does not answer, and {one.service} of the run {known.run} may still run "
        "there. Repeat this command when it answers. If it is gone for good, "
        f'`make replace HOST={one.name} WITH="ana@10.0.0.9"` gives its worker another machine, '
        "and `make down` gives the cluster up."
        for one in away
        if one.name not in targets
    ]
    if sentences:
        raise EndError(EXIT_CONFIGURATION, *sentences)


def _stop_cut_off(those: Sequence[OwnContainer]) -> None:
    """Stop the workers of an interrupted start.

    They wait for workers that no later start can provide, because each start has its own token.

    Raises:
        EndError: a worker cannot be stopped.
    """
    machines = [one.machine for one in those]
    names = ", ".join(f"{one.service} on {one.name}" for one in machines)
    say(f"an earlier start was interrupted; stopping {names}")
    if found := containers.stop_all(those):
        raise EndError(EXIT_ERROR, *found)


def remove(known: Kept, hosts: Sequence[Host]) -> None:
    """Remove the workers of the project's last start, which have ended.

    Args:
        known: the cluster of that start.
        hosts: the machines of the next start.

    Raises:
        EndError: one cannot be removed from a machine of the next start, where it has the name of
            the next worker. The record must not change: it identifies the worker.
    """
    those = known.left
    found = [
        (one.machine.name, text)
        for one, text in zip(those, at_once(containers.remove, those))
        if text
    ]
    targets = [host.target for host in hosts]
    if left := [text for name, text in found if name in targets]:
        raise EndError(EXIT_ERROR, *left, "no worker was started. Repeat this command.")
    for _, text in found:
        complain(text)

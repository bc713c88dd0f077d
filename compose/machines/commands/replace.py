"""`replace`: gives a worker another machine, and resumes the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Callable

from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from machines.cluster_record import Kept
from machines.hosts_setting import A_HOST, Host, parse
from machines.machine import Machine
from machines.workers.replacement import Replacement

Resume = Callable[[str, "Replacement | None"], int]


def replace(kept: Kept, pair: tuple[str, str], resume: Resume) -> int:
    """Replace a machine of a run by another one, and resume the run; return the exit code.

    The run continues until the new machines are checked and the image and the code are copied. If
    an earlier `replace` was interrupted after the change, the run resumes with its machines.

    Args:
        kept: the cluster.
        pair: the machine that leaves, by its name, or by the number of the one worker that leaves
            it; and the machines that come, with their options, one for each worker that leaves.
        resume: resumes the run with this HOSTS, and returns the exit code. If a cluster is given,
            it is stopped first.

    Raises:
        EndError: an argument is wrong or a check fails, and nothing has changed; or a worker
            cannot be stopped or started.
    """
    if _was_done(kept, pair):
        say(f"{pair[1]} is one of the machines already; resuming the run")
        return resume(_text(kept.hosts), None)
    leaving = _leaving(kept, pair[0])
    coming = _coming(kept, leaving, pair[1])
    hosts = _with(kept, leaving, coming)
    says = ", ".join(host.target for host in coming)
    say(f"replacing {', '.join(_in_words(one) for one in leaving)} by {says}")
    return resume(_text(hosts), Replacement(kept, leaving))


def _was_done(kept: Kept, pair: tuple[str, str]) -> bool:
    """Tell whether the cluster already has the machines that come, in place of the other one."""
    try:
        coming = parse([pair[1]])
    except EndError:
        return False
    there = tuple(
        one for one in kept.machines if any(_as_given(one.host, host) == host for host in coming)
    )
    return len(there) == len(coming) and _named(kept, pair[0]) in ((), there)


def _as_given(known: Host, given: Host) -> Host:
    """Return a host of the cluster without its folder, if the other one has none."""
    return known if given.dir else dataclasses.replace(known, dir="")


def _text(hosts: Sequence[Host]) -> str:
    return "\n".join(host.text for host in hosts)


def _named(kept: Kept, name: str) -> tuple[Machine, ...]:
    """Return the worker with this number, or all workers of the machine with this name."""
    by_number = tuple(one for one in kept.machines if name in (one.service, str(one.index)))
    return by_number or tuple(
        one for one in kept.machines if name in (one.name, one.name.rpartition("@")[2])
    )


def _leaving(kept: Kept, name: str) -> tuple[Machine, ...]:
    if named := _named(kept, name):
        return named
    names = ", ".join(_in_words(one) for one in kept.machines)
    accepted = f"one of this cluster's machines, or the number of a worker: {names}"
    raise EndError(EXIT_CONFIGURATION, f'HOST: received "{name}"; accepted: {accepted}.')


def _coming(kept: Kept, leaving: Sequence[Machine], text: str) -> list[Host]:
    """Return the machines that come.

    Raises:
        EndError: the text is not one machine for each worker, or the cluster has one already.
    """
    try:
        coming = parse([text])
        if len(coming) == len(leaving):
            parse(one.text for one in _with(kept, leaving, coming))
    except EndError as error:
        refused = f'WITH: received "{text}"; accepted: {A_HOST}.'
        raise EndError(EXIT_CONFIGURATION, refused, *error.sentences) from error
    if len(coming) != len(leaving):
        workers = ", ".join(one.service for one in leaving)
        accepted = f"{len(leaving)}, for {workers} of {leaving[0].name}"
        if len(leaving) > 1:
            accepted += f"; or HOST={leaving[0].index} for one of its workers"
        told = f'WITH: received {len(coming)} machine(s), "{text}"; accepted: {accepted}.'
        raise EndError(EXIT_CONFIGURATION, told)
    return coming


def _with(kept: Kept, leaving: Sequence[Machine], coming: Sequence[Host]) -> list[Host]:
    """Return the cluster's hosts after the change."""
    changed = {one.index: host for one, host in zip(leaving, coming)}
    return [changed.get(index, host) for index, host in enumerate(kept.hosts)]


def _in_words(one: Machine) -> str:
    return f"{one.name} ({one.service})"

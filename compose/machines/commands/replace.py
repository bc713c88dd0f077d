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
        pair: the machine that leaves, by its name or its worker's number, and the machine that
            comes, with its options.
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
    hosts = [*kept.hosts]
    hosts[leaving.index] = _coming(hosts, leaving, pair[1])
    say(f"replacing {leaving.name} by {hosts[leaving.index].target}")
    return resume(_text(hosts), Replacement(kept, leaving))


def _was_done(kept: Kept, pair: tuple[str, str]) -> bool:
    """Tell whether the cluster already has the machine that comes, in place of the other one."""
    try:
        coming = parse([pair[1]])
    except EndError:
        return False
    there = [one for one in kept.machines if [_as_given(one.host, coming[0])] == coming]
    return bool(there) and _named(kept, pair[0]) in (None, there[0])


def _as_given(known: Host, given: Host) -> Host:
    """Return a host of the cluster without its folder, if the other one has none."""
    return known if given.dir else dataclasses.replace(known, dir="")


def _text(hosts: Sequence[Host]) -> str:
    return "\n".join(host.text for host in hosts)


def _named(kept: Kept, name: str) -> Machine | None:
    for one in kept.machines:
        if name in (one.name, one.name.rpartition("@")[2], one.service, str(one.index)):
            return one
    return None


def _leaving(kept: Kept, name: str) -> Machine:
    if named := _named(kept, name):
        return named
    names = ", ".join(one.name for one in kept.machines)
    accepted = f"one of this cluster's machines: {names}"
    raise EndError(EXIT_CONFIGURATION, f'HOST: received "{name}"; accepted: {accepted}.')


def _coming(hosts: list[Host], leaving: Machine, text: str) -> Host:
    """Return the machine that comes.

    Raises:
        EndError: the text is not exactly one machine, or the cluster already has this machine.
    """
    try:
        (host,) = parse([text])
        parse(one.text for one in [*hosts[: leaving.index], host, *hosts[leaving.index + 1 :]])
    except (ValueError, EndError) as error:
        more = error.sentences if isinstance(error, EndError) else ()
        refused = f'WITH: received "{text}"; accepted: {A_HOST}.'
        raise EndError(EXIT_CONFIGURATION, refused, *more) from error
    return host

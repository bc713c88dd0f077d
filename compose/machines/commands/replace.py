"""`replace`: another machine takes the place of one, and the run resumes with all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from machines.host import A_HOST, Host, parse
from machines.kept import Kept
from machines.machine import Machine
from machines.workers.replacement import Replacement

Resume = Callable[[str, "Replacement | None"], int]


def replace(kept: Kept, pair: tuple[str, str], resume: Resume) -> int:
    """Resume a run with another machine in the place of one; return the exit code.

    The run trains on until the new list of machines is checked, and image and code are copied. If
    this was done before, but cut off, the run resumes with the machines that it has.

    Args:
        kept: the cluster.
        pair: the machine that leaves, as it was named or by its worker's number; the machine that
            comes, with its options.
        resume: resumes the run with HOSTS, in the place of a cluster; its result is the exit code.

    Raises:
        EndError: there is a mistake in what was given, or a machine cannot do it. Then nothing has
            changed.
    """
    if _was_done(kept, pair):
        say(f"{pair[1]} is one of the machines already; resuming the run")
        return resume(_text(kept.hosts), None)
    leaving = _leaving(kept, pair[0])
    hosts = [*kept.hosts]
    hosts[leaving.index] = _coming(hosts, leaving, pair[1])
    say(f"{hosts[leaving.index].target} is to take the place of {leaving.name}")
    return resume(_text(hosts), Replacement(kept, leaving))


def _was_done(kept: Kept, pair: tuple[str, str]) -> bool:
    """Tell whether the machine that comes is there, and the one that leaves is not."""
    try:
        coming = parse([pair[1]])
    except EndError:
        return False
    there = [one for one in kept.machines if [one.host] == coming]
    return bool(there) and _named(kept, pair[0]) in (None, there[0])


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
    """Return the machine that comes; it may not be there already.

    Raises:
        EndError: it is no machine, or not one.
    """
    try:
        (host,) = parse([text])
        parse(one.text for one in [*hosts[: leaving.index], host, *hosts[leaving.index + 1 :]])
    except (ValueError, EndError) as error:
        more = error.sentences if isinstance(error, EndError) else ()
        refused = f'WITH: received "{text}"; accepted: {A_HOST}.'
        raise EndError(EXIT_CONFIGURATION, refused, *more) from error
    return host

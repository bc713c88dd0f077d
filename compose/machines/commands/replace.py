"""`replace`: another machine takes the place of one, and the run resumes with all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_changes
from typing import Callable

from local_cluster.messages import EXIT_CONFIGURATION, EndError, complain, say
from machines import checks, image, workers
from machines import kept as files
from machines.commands.stop import stop_all
from machines.commands.up import send_image
from machines.host import A_HOST, Host, parse
from machines.kept import Kept
from machines.machine import Machine


def replace(
    kept: Kept,
    pair: tuple[str, str],
    image_name: str,
    environ: Mapping[str, str],
    resume: Callable[[str], int],
) -> int:
    """Check the new machine, stop all at a checkpoint, and resume with the new list.

    Args:
        kept: the cluster.
        pair: the machine that leaves, as it was named or by its worker's number; the machine that
            comes, with its options.
        image_name: what the run's workers run.
        environ: all variables.
        resume: resumes the run with HOSTS; its result is the exit code.

    Raises:
        EndError: there is a mistake in what was given, or the new machine cannot do it. Then
            nothing has changed.
    """
    leaving = _leaving(kept, pair[0])
    hosts = [*kept.hosts]
    coming = Machine(_coming(hosts, leaving, pair[1]), leaving.index)
    what = image.read(image_name)
    send_image(what, checks.check([coming], what, kept.project))
    say(f"{coming.name} takes the place of {leaving.name}; stopping the run at a checkpoint")
    for problem in stop_all(kept, [one for one in kept.machines if one != leaving]):
        complain(problem)
    if problem := workers.remove(leaving, kept.project):
        complain(problem)
    hosts[leaving.index] = coming.host
    files.write(with_changes(kept, hosts=tuple(hosts)), environ)
    return resume("\n".join(host.text for host in hosts))


def _leaving(kept: Kept, name: str) -> Machine:
    for one in kept.machines:
        if name in (one.name, one.name.rpartition("@")[2], one.service, str(one.index)):
            return one
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

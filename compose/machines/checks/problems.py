"""Lists the problems of each machine, and those between machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from machines.checks import one_machine
from machines.checks.facts import Facts
from machines.checks.own import NONE, Own
from machines.image import Image
from machines.machine import address_of

MOST_CLOCK_SECONDS = 5.0


def problems(
    all_facts: Sequence[Facts], image: Image, own: Own = NONE, metrics_port: str = ""
) -> list[str]:
    """Return a sentence for each problem.

    Args:
        all_facts: the facts of all machines.
        image: the workers' image.
        own: the workers that this start replaces.
        metrics_port: METRICS_PORT of all workers; "": they have none.
    """
    reached = [one for one in all_facts if not one.error]
    return [
        *(
            f"{one.machine.name}: {problem}"
            for one in all_facts
            for problem in one_machine.problems(one, image, own)
        ),
        *(_of_addresses(reached) if len(all_facts) > 1 else ()),
        *_of_shared_gpus(all_facts, image),
        *_of_metrics(reached, metrics_port, own),
        *_of_clocks(reached),
    ]


def _of_addresses(reached: Sequence[Facts]) -> Iterator[str]:
    """Yield a sentence for each address that is loopback, or that another worker has as well."""
    first: dict[tuple[str, str], str] = {}
    for one in reached:
        address = address_of(one.machine).strip("[]")
        other = first.setdefault((address.lower(), one.machine.host.port), one.machine.name)
        if other != one.machine.name:
            yield (
                f"{one.machine.name}: it has the address and the port of {other}, "
                f"{address}:{one.machine.host.port}; accepted: another port= for each worker of a "
                "machine, or another address= if they are two machines"
            )
        if address in ("localhost", "::1") or address.startswith("127."):
            yield (
                f"{one.machine.name}: the other machines cannot reach it as {address}; with "
                "address=, give an address that they can reach"
            )


def _of_shared_gpus(all_facts: Sequence[Facts], image: Image) -> list[str]:
    """Return a sentence for each machine with several workers, one of which would get all GPUs."""
    if not image.for_gpus:
        return []
    names = [one.machine.name for one in all_facts]
    addresses = [address_of(one.machine).lower() for one in all_facts]
    shared = {
        name
        for one, name, address in zip(all_facts, names, addresses)
        if not one.machine.host.gpus
        if names.count(name) > 1 or addresses.count(address) > 1
    }
    return [
        f"{name}: it has several workers, and one without gpus= gets all GPUs; give gpus= for each"
        for name in sorted(shared)
    ]


def _of_metrics(reached: Sequence[Facts], port: str, own: Own) -> Iterator[str]:
    """Yield a sentence for each worker that cannot have METRICS_PORT on its machine's network."""
    names = [one.machine.name for one in reached]
    ports = {one.machine.host.port for one in reached}
    for one in reached if port.isdecimal() else ():
        name = one.machine.name
        if port in ports:
            yield f"{name}: METRICS_PORT={port} is the port of a worker; give another"
        elif names.count(name) > 1:
            yield f"{name}: only one of its workers can have METRICS_PORT={port}; leave it out"
        elif int(port) in one.listens and not own.running(one):
            yield f"{name}: another program listens on METRICS_PORT={port}; give another"


def _of_clocks(reached: Sequence[Facts]) -> list[str]:
    """Return a sentence for each wrong clock, or one for all if no majority agrees."""
    clocks = sorted(one.clock for one in reached)
    if not clocks or clocks[-1] - clocks[0] <= MOST_CLOCK_SECONDS:
        return []
    accepted = f"at most {MOST_CLOCK_SECONDS:g} s. Switch on time synchronisation (NTP)"
    middle = clocks[len(clocks) // 2]
    away = {one.machine.name: abs(one.clock - middle) for one in reached}
    wrong = {name: by for name, by in away.items() if by > MOST_CLOCK_SECONDS}
    if 2 * (len(away) - len(wrong)) > len(away):
        told = "its clock differs by {:.0f} s from the others'; accepted: {}."
        return [f"{name}: {told.format(by, accepted)}" for name, by in wrong.items()]
    names = ", ".join(away)
    by = clocks[-1] - clocks[0]
    return [f"{names}: their clocks differ by {by:.0f} s; accepted: {accepted} on all of them."]

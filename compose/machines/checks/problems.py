"""Lists the problems of each machine, and those between machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from machines.checks import one_machine
from machines.checks.facts import Facts
from machines.checks.own import NONE, Own
from machines.image import Image
from machines.machine import address_of

MOST_CLOCK_SECONDS = 5.0


def problems(all_facts: Sequence[Facts], image: Image, own: Own = NONE) -> list[str]:
    """Return a sentence for each problem.

    Args:
        all_facts: the facts of all machines.
        image: the workers' image.
        own: the workers that this start replaces.
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
        *_of_clocks(reached),
    ]


def _of_addresses(reached: Sequence[Facts]) -> Iterator[str]:
    """Yield a sentence for each machine whose address is a loopback address."""
    for one in reached:
        address = address_of(one.machine).strip("[]")
        if address in ("localhost", "::1") or address.startswith("127."):
            yield (
                f"{one.machine.name}: the other machines cannot reach it as {address}; with "
                "address=, give an address that they can reach"
            )


def _of_shared_gpus(all_facts: Sequence[Facts], image: Image) -> list[str]:
    """Return a sentence for each machine with several workers, one of which would get all GPUs."""
    names = [one.machine.name for one in all_facts] if image.for_gpus else []
    shared = {
        one.machine.name
        for one in all_facts
        if names.count(one.machine.name) > 1 and not one.machine.host.gpus
    }
    return [
        f"{name}: it has several workers, and one without gpus= gets all GPUs; give gpus= for each"
        for name in sorted(shared)
    ]


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

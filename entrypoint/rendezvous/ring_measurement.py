"""Measures the network of a ring, and names its workers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import astuple

from entrypoint.cluster.spec import Member
from entrypoint.network.link import Link
from entrypoint.network.measuring import measure
from entrypoint.network.protocol import Effort, MeasuringError
from entrypoint.rendezvous.outcome import PeersMissingError, Ring


async def measured_links(
    ring: Ring,
    connections: tuple[socket.socket, socket.socket],
    members: Sequence[Member],
    effort: Effort,
) -> list[Link]:
    """Return the links of a ring, worker 0's first; close the measuring connections.

    Raises PeersMissingError, which names a worker that does not answer.
    """
    found = [members[place] for place in ring.positions]
    try:
        links = await measure(ring.rank, ring.size, *connections, effort)
    except MeasuringError as error:
        silent = found[error.rank]
        raise PeersMissingError(f"{silent.task} at {silent.address} {error.reason}") from None
    names = [str(member.task) for member in found]
    return [
        Link(sender, receiver, *astuple(one))
        for sender, receiver, one in zip(names, [*names[1:], names[0]], links, strict=True)
    ]

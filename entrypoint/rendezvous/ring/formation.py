"""One attempt to form a ring, from the open port to the two connections."""

from __future__ import annotations

import asyncio
import functools
import socket

from entrypoint.log import shared_level
from entrypoint.rendezvous.outcome import BackAtTheGateError, PeersMissingError, with_reasons
from entrypoint.rendezvous.port import listening_host, open_port
from entrypoint.rendezvous.ring.left import receive
from entrypoint.rendezvous.ring.right import keep_dialling
from entrypoint.rendezvous.ring.state import State
from entrypoint.rendezvous.ring.wanted import Ring, Wanted
from entrypoint.rendezvous.transport import signing
from entrypoint.rendezvous.transport.dialer import Dialer
from entrypoint.rendezvous.transport.listener import Listener
from entrypoint.rendezvous.transport.messages import JOIN
from entrypoint.rendezvous.transport.names import Names
from entrypoint.rendezvous.transport.reasons import AtTheGateError
from entrypoint.rendezvous.transport.strangers import Strangers

BUFFER_BYTES = 4 * 2**20
"""What a connection may hold on its way: 10 Gbit/s over 3 ms, or 100 Mbit/s over 300 ms."""


async def form(wanted: Wanted) -> Ring:
    """Return this worker's part of the ring; its port is free again then.

    Raises PeersMissingError, BackAtTheGateError among them, and what `open_port` raises. Cancelled,
    it leaves nothing behind.
    """
    host, timing = listening_host(wanted.spec, wanted.me), wanted.timing
    with await open_port(host, wanted.me, timing.port_seconds, wanted.say) as port:
        enlarge_buffers(port)
        state = State(wanted)
        listener = Listener(
            port,
            Strangers(wanted.size),
            wanted.token,
            timing,
            functools.partial(receive, state),
            purpose=signing.RING,
            hellos=(JOIN,),
        )
        loops = [asyncio.create_task(loop) for loop in (listener.run(), _report(state))]
        try:
            ring = await _formed(state)
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await listener.close_all()
    level = shared_level(is_chief=ring.rank == 0)
    wanted.say(level, f"{ring.size} workers are a ring, generation {ring.generation}")
    return ring


async def _formed(state: State) -> Ring:
    """Return the ring; raise PeersMissingError."""
    wanted, timing = state.wanted, state.wanted.timing
    names = Names(timing.look_up_seconds, timing.ask_again_seconds)
    dialer = Dialer(names, wanted.token, timing, 1, purpose=signing.RING, prepare=enlarge_buffers)
    try:
        async with asyncio.timeout(wanted.timeout_seconds or None):
            return await keep_dialling(state, dialer)
    except TimeoutError:
        line = state.line(wanted.timeout_seconds)
        raise PeersMissingError(f"gave up after {wanted.timeout_seconds:g} s: {line}") from None
    except AtTheGateError as error:
        raise BackAtTheGateError(with_reasons([(wanted.right, str(error))])) from None


async def _report(state: State) -> None:
    """Say every few seconds who is missing."""
    loop, timing = asyncio.get_running_loop(), state.wanted.timing
    began = loop.time()
    await asyncio.sleep(timing.first_line_seconds)
    while True:
        state.wanted.say("INFO", state.line(loop.time() - began))
        await asyncio.sleep(timing.line_seconds)


def enlarge_buffers(unconnected: socket.socket) -> None:
    """Give a socket the buffers of a long way, if this machine allows as much.

    A size that is set is never adapted any more, and Linux cuts it down to net.core.rmem_max and
    wmem_max without a word. Those are small by default, where Linux's own adapting goes further.
    """
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            allowed = probe.getsockopt(socket.SOL_SOCKET, option)
        if allowed >= BUFFER_BYTES:
            unconnected.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)

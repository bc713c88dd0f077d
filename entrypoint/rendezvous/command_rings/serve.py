"""Answers a command that asks for its neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import Coroutine, Sequence

from entrypoint.cluster.spec import Task
from entrypoint.errors import EXIT_CONFIGURATION, EXIT_PEER_LOST, ConfigurationError
from entrypoint.rendezvous.command_rings.group import Group
from entrypoint.rendezvous.outcome import PeersMissingError, PortTakenError, Ring
from entrypoint.strict_json import parse_object

LONGEST_ASK = 4096
"""The number of bytes of a request."""
RING = "ring"
SIGN_SECONDS = 10.0
"""The interval of heartbeats while a ring forms. The command gives up after 60 s without one."""
UNMEASURED, NO_OTHERS = "the network cannot be measured", "no other worker can join"
ACCEPTED = '{"ask": "ring"}, and a "number" that comes back with the answer'


def serve(asks: socket.socket, group: Group) -> None:
    """Answer the command's requests until it has ended."""
    while ask := asks.recv(LONGEST_ASK):
        asyncio.run(_answer(asks, ask, group))
        asyncio.run(_until_it_asks(asks, group.measure_network(), group, UNMEASURED))
        receiving = group.receive_latecomers(functools.partial(_tell_of, asks))
        asyncio.run(_until_it_asks(asks, receiving, group, NO_OTHERS))


async def _until_it_asks(
    asks: socket.socket, work: Coroutine[None, None, None], group: Group, failed: str
) -> None:
    """Do work until the command sends a request or ends; if the work fails, warn."""
    working = asyncio.create_task(work)
    saying = asyncio.create_task(_readable(asks))
    await asyncio.wait({working, saying}, return_when=asyncio.FIRST_COMPLETED)
    if working.done() and (error := working.exception()):
        group.warn(f"{failed}: {error}")
    for task in (working, saying):
        task.cancel()
    await asyncio.gather(working, saying, return_exceptions=True)


def _tell_of(asks: socket.socket, tasks: Sequence[Task]) -> None:
    """Tell the command which workers wait to join. The packet is dropped if the queue is full."""
    news = {"waiting": [str(task) for task in tasks]}
    with contextlib.suppress(OSError):
        asks.send(json.dumps(news).encode(), socket.MSG_DONTWAIT)


async def _answer(asks: socket.socket, ask: bytes, group: Group) -> None:
    """Answer a request, unless the command first sends another one or ends."""
    try:
        number = _number(ask)
    except ValueError:
        text = f"the entrypoint was asked for something that it does not know; accepted: {ACCEPTED}"
        _send(asks, {"error": text, "code": EXIT_CONFIGURATION})
        return
    forming = asyncio.create_task(group.ring())
    another = asyncio.create_task(_readable(asks))
    signs = asyncio.create_task(_give_signs(asks))
    await asyncio.wait({forming, another}, return_when=asyncio.FIRST_COMPLETED)
    if forming.done():
        await _tell(asks, number, forming)
    for task in (forming, another, signs):
        task.cancel()
    await asyncio.gather(forming, another, signs, return_exceptions=True)


async def _give_signs(asks: socket.socket) -> None:
    """Send heartbeats to the command, which has no other limit on the wait for its answer."""
    while True:
        await asyncio.sleep(SIGN_SECONDS)
        with contextlib.suppress(OSError):  # the command has not read the earlier ones
            asks.send(json.dumps({"forming": True}).encode(), socket.MSG_DONTWAIT)


async def _tell(asks: socket.socket, number: str, forming: asyncio.Task[Ring]) -> None:
    try:
        ring = await forming
    except (PeersMissingError, PortTakenError) as error:
        _send(asks, {"number": number, "error": str(error), "code": EXIT_PEER_LOST})
    except ConfigurationError as error:
        _send(asks, {"number": number, "error": str(error), "code": EXIT_CONFIGURATION})
    except Exception as error:  # noqa: BLE001 -- the command must be told of any error
        text = f"the neighbours could not be connected: {error!r}"
        _send(asks, {"number": number, "error": text, "code": EXIT_PEER_LOST})
    else:
        place = {
            "rank": ring.rank,
            "size": ring.size,
            "generation": ring.generation,
            "members": ring.positions,
        }
        _send(asks, {"number": number, **place}, ring.left, ring.right)
        ring.close()


async def _readable(asks: socket.socket) -> None:
    there, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(asks, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(asks)


def _number(ask: bytes) -> str:
    fields = parse_object(ask.decode())
    number = fields.get("number", "")
    if fields.get("ask") != RING or not isinstance(number, str):
        raise ValueError
    return number


def _send(asks: socket.socket, answer: dict[str, object], *handed: socket.socket) -> None:
    """Send a packet with copies of these sockets; ignore a command that has ended."""
    descriptors = [one.fileno() for one in handed]
    with contextlib.suppress(OSError):
        socket.send_fds(asks, [json.dumps(answer).encode()], descriptors)

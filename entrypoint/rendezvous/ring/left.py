"""The left neighbour: it dials this worker, and passes on what goes round."""

from __future__ import annotations

import asyncio

from entrypoint.rendezvous.ring.state import State
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.listener import Settle
from entrypoint.rendezvous.transport.messages import (
    CARD,
    COMMIT,
    PING,
    REFUSE,
    ROUND,
    Message,
)
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError


async def receive(state: State, connection: Connection, join: Message, settle: Settle) -> None:
    """Talk to one who has dialled this worker for the ring, until the connection ends."""
    wanted = state.wanted
    if reason := wanted.refusal(join, wanted.left):
        state.refuse_left(f"one at {connection.ip} was refused: it {reason}")
        await connection.send(Message(REFUSE, {"reason": reason}))
        await connection.dismiss()
        return
    await connection.send(wanted.card(CARD))
    settle()
    gone = state.take_left(connection)
    reason = "its connection has ended: it was stopped or lost"
    try:
        await _attend(state, connection, gone)
    except PeerError as error:
        reason = str(error)
        raise
    finally:
        state.lose_left(connection, reason)


async def _attend(state: State, connection: Connection, gone: asyncio.Event) -> None:
    """Answer the left neighbour until it has committed: then nothing more is read, or sent."""
    while True:
        message = await connection.receive(state.wanted.timing.silent_seconds)
        number = message.number("number")
        if message.kind == COMMIT:
            state.take_commit(number, message.number("generation"))
            break
        if message.kind not in (PING, ROUND):
            raise PeerError(NO_MESSAGE)
        state.hear_left(message.text("missing"))
        answer = {"number": number, "missing": state.told_left()}
        await connection.send(Message(message.kind, answer))
        if message.kind == ROUND:
            state.take_round(number, message.number("newest"))
    await gone.wait()

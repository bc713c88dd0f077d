"""The right neighbour: this worker dials it, and passes on to it what goes round."""

from __future__ import annotations

import asyncio
import random

from entrypoint.rendezvous.ring.state import Commit, Round, State
from entrypoint.rendezvous.ring.wanted import Ring
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.dialer import Dialer
from entrypoint.rendezvous.transport.messages import (
    CARD,
    COMMIT,
    JOIN,
    LONGEST_TEXT,
    PING,
    REFUSE,
    ROUND,
    Message,
)
from entrypoint.rendezvous.transport.reasons import (
    CLOSED,
    CLOSED_AT_ONCE,
    NO_MESSAGE,
    REFUSED,
    SILENT,
    AtTheGateError,
    PeerError,
)

FIRST_REDIALS = 8
"""The first attempts follow each other faster: most ask for the ring at the same time."""
SHORTEST_SECONDS = 0.02
"""Between two attempts, whatever is heard."""
GONE = (REFUSED, CLOSED, CLOSED_AT_ONCE)
"""Reasons that one leaves behind who has given up, whatever was wrong before."""
NOT_LISTENING = (
    "refused: the machine answers, but nothing listens on the port; "
    "its command has not asked for its neighbours yet, or has ended"
)


async def keep_dialling(state: State, dialer: Dialer) -> Ring:
    """Dial the right neighbour, again whenever the connection has ended, until the ring is there.

    Raises AtTheGateError: it will not come before this worker has been at the gate, too.
    """
    pause, before = state.wanted.timing.redial_seconds / FIRST_REDIALS, ""
    while True:
        try:
            async with dialer.dial(state.wanted.right.address) as connection:
                await _join(state, connection)
                before = ""
                return await _attend(state, connection)
        except AtTheGateError:
            raise
        except PeerError as error:
            before = before if str(error) in GONE else str(error)
            state.right_reason = _reason(str(error), before)
        finally:
            state.right = None
        await _pause(state, pause * random.uniform(0.67, 1.33))  # noqa: S311 -- no secret
        pause = min(2 * pause, state.wanted.timing.redial_seconds)


async def _pause(state: State, seconds: float) -> None:
    """Wait before dialling again: for so long, or until there is news, which may be of its coming.

    Nobody else takes the news, as there is no connection to the right. However much of it comes,
    the neighbour is not dialled more often than this.
    """
    shortest = min(seconds, SHORTEST_SECONDS)
    await asyncio.sleep(shortest)
    await state.news(seconds - shortest)


def _reason(reason: str, before: str) -> str:
    """Return why the neighbour is missing; of one that has given up, what was wrong before, too."""
    shown = NOT_LISTENING if reason == REFUSED else reason
    return f"{shown} (before: {before})" if before not in ("", reason) else shown


async def _join(state: State, connection: Connection) -> None:
    """Say who this is; raise PeerError unless it is the right neighbour who answers."""
    answer = await connection.ask(state.wanted.card(JOIN), state.wanted.timing.message_seconds)
    if answer.kind == REFUSE:
        raise PeerError(f"refuses this worker: it {answer.text('reason', LONGEST_TEXT)}")
    if answer.kind != CARD:
        raise PeerError(NO_MESSAGE)
    if reason := state.wanted.refusal(answer, state.wanted.right):
        raise PeerError(reason)
    state.right = connection
    if state.is_first:
        state.begin_round()


async def _attend(state: State, connection: Connection) -> Ring:
    """Pass on what goes round, until the ring is there; raise PeerError."""
    passed: Round | None = None
    while True:
        if state.commit and state.round is passed:
            return await _commit(state, connection, state.commit)
        if state.commit:  # its round went over another connection
            state.break_off()
        elif state.round and state.round is not passed:
            passed = await _pass_on(state, connection, state.round)
        else:
            await _ask(state, connection, PING, {"number": 0})
            await state.news(state.wanted.timing.ping_seconds)


async def _pass_on(state: State, connection: Connection, round_: Round) -> Round:
    """Pass a round on, and return it."""
    fields = {"number": round_.number, "newest": round_.newest}
    await _ask(state, connection, ROUND, fields)
    return round_


async def _ask(state: State, connection: Connection, kind: str, fields: dict[str, int]) -> None:
    """Send what is answered, and wait for the answer.

    One thing after the other: when a commit is sent, no answer is on its way that somebody else
    would have to read.
    """
    message = Message(kind, {**fields, "missing": state.told_right()})
    answer = await connection.ask(message, state.wanted.timing.silent_seconds)
    if answer.kind != kind or answer.number("number") != fields["number"]:
        raise PeerError(NO_MESSAGE)
    state.right_says = answer.text("missing")


async def _commit(state: State, connection: Connection, commit: Commit) -> Ring:
    """Tell the right neighbour that the ring is closed, and hand both connections over."""
    fields = {"number": commit.number, "generation": commit.generation}
    await connection.send(Message(COMMIT, fields))
    if state.is_first:
        await _wait_for_return(state)
    if state.left is None:
        raise PeerError(SILENT)
    wanted, left, right = state.wanted, state.left.hand_over(), connection.hand_over()
    return Ring(wanted.rank, wanted.size, commit.generation, wanted.positions, left, right)


async def _wait_for_return(state: State) -> None:
    """Wait until all have committed; raise PeerError where that cannot be any more.

    Those who have committed see that their connections end, and ask again.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + state.wanted.timing.silent_seconds
    while not state.has_returned:
        if state.left is None or loop.time() >= until:
            raise PeerError("the ring has broken while it was closed")
        await state.news(until - loop.time())

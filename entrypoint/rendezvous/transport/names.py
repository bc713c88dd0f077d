"""Looks up workers' names with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.look_ups import Endpoint, Found, LookUps, NoThreadError
from entrypoint.rendezvous.transport.reasons import (
    NO_NAME,
    NO_NAME_SERVER,
    NO_THREAD,
    BlindError,
    PeerError,
)

MOST_ENDPOINTS = 4
"""The number of IP addresses of one name that are dialled, one after the other."""
MOST_QUESTIONS = 5
"""Simultaneous look-ups of one name. Each needs a thread, perhaps for minutes."""


class Names:
    """Looks up the names of one meeting.

    Args:
        seconds: the time limit of a look-up.
        again_seconds: the interval at which an unanswered look-up is repeated in parallel. A name
            server may not answer for a missing name, and the name may appear meanwhile. None: no
            repetition, because there are many names.
    """

    def __init__(self, seconds: float, again_seconds: float | None = None) -> None:
        self._seconds, self._again_seconds = seconds, again_seconds
        self._loop = asyncio.get_running_loop()
        self._look_ups = LookUps()
        self._answers: dict[Address, asyncio.Future[Found]] = {}
        self._questions: dict[Address, int] = {}

    async def look_up(self, address: Address) -> list[Endpoint]:
        """Return the endpoints of an address. Raises PeerError."""
        if literal := _literal(address):
            return [literal]
        if address not in self._answers:
            self._answers[address] = self._loop.create_future()
            self._questions[address] = 0
            self._ask(address, self._answers[address])
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._first_answer(address)
        except TimeoutError:
            raise PeerError(NO_NAME_SERVER) from None
        if isinstance(found, NoThreadError):
            raise BlindError(NO_THREAD)
        if isinstance(found, Exception):
            raise PeerError(_reason(found))
        return found[:MOST_ENDPOINTS]

    def forget(self, address: Address) -> None:
        """Look the name up again next time, because it may have changed since the last look-up."""
        self._answers.pop(address, None)

    async def _first_answer(self, address: Address) -> Found:
        """Wait for an answer, and repeat the look-up at intervals."""
        answer = self._answers[address]
        while self._again_seconds and not answer.done():
            await asyncio.wait([answer], timeout=self._again_seconds)
            if not answer.done() and self._questions[address] < MOST_QUESTIONS:
                self._ask(address, answer)
        return await asyncio.shield(answer)

    def _ask(self, address: Address, answer: asyncio.Future[Found]) -> None:
        self._questions[address] += 1
        hand_over = functools.partial(self._hand_over, address, answer)
        self._look_ups.ask(address.host, address.port, hand_over)

    def _hand_over(self, address: Address, answer: asyncio.Future[Found], found: Found) -> None:
        with contextlib.suppress(RuntimeError):  # the attempt has ended, and its loop is closed
            self._loop.call_soon_threadsafe(self._answered, address, answer, found)

    def _answered(self, address: Address, answer: asyncio.Future[Found], found: Found) -> None:
        """Give an answer to all waiting tasks. The next request starts a new look-up."""
        if not answer.done():
            answer.set_result(found)
        if self._answers.get(address) is answer:
            del self._answers[address]


def _literal(address: Address) -> Endpoint | None:
    """Return the endpoint of an IP address; None for a name."""
    try:
        version = ipaddress.ip_address(address.host).version
    except ValueError:
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6  # noqa: PLR2004
    return family, (address.host, address.port)


def _reason(error: Exception) -> str:
    is_silent = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
    return NO_NAME_SERVER if is_silent else NO_NAME

"""Garbage in place of a header is an error, in every operation and on all ranks.

The content behind a header has no checksum, and is taken as it is.
"""

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_trainer.collectives.ring.errors import Aborted, OutOfStep
from cluster_trainer.collectives.ring.headers import HEADER
from cluster_trainer.collectives.ring.ring import Ring
from harness.played import CALLS, CONTENT, VALUES, Peer, as_bytes, messages
from harness.rings import outcomes, rings

SECONDS = 10.0
# A gather has two headers: one for the sizes, and one for the contents.
HEADERS = [("sum", 0), ("gather", 0), ("gather", 1), ("broadcast", 0), ("barrier", 0)]
headers = pytest.mark.parametrize(("call", "number"), HEADERS)
sizes = pytest.mark.parametrize("size", [2, 3])
calls = pytest.mark.parametrize("call", CALLS)


@pytest.fixture
def played() -> Iterator[Callable[[int], Peer]]:
    """Return a function that makes a ring whose other ranks are played by the test."""
    made: list[Peer] = []

    def make(size: int) -> Peer:
        made.append(Peer(size))
        return made[-1]

    yield make
    for one in made:
        one.end()


@sizes
@calls
def test_one_who_does_as_agreed_is_understood(
    played: Callable[[int], Peer], call: str, size: int
) -> None:
    peer = played(size)
    peer.data.send(as_bytes(messages(call, size)))
    found = CALLS[call](peer.ring)
    expected = {"gather": [CONTENT] * size, "broadcast": CONTENT, "barrier": None}
    assert (found == size * VALUES).all() if call == "sum" else found == expected[call]


@sizes
@headers
@pytest.mark.parametrize("flipped", [0x01, 0xC0])
def test_a_changed_byte_anywhere_in_a_header_is_seen(
    call: str, number: int, size: int, flipped: int
) -> None:
    *before, (header, content) = messages(call, size)[: number + 1]
    for place in range(HEADER.size):
        wrong = bytearray(header.pack())
        wrong[place] ^= flipped
        peer = Peer(size)
        peer.data.send(as_bytes(before) + wrong + content)
        peer.live()
        with pytest.raises(OutOfStep) as caught:
            CALLS[call](peer.ring)
        peer.end()
        assert caught.value.rank == peer.last


@sizes
@headers
@given(garbage=st.binary(min_size=HEADER.size, max_size=200))
@settings(max_examples=10)
def test_garbage_in_place_of_a_header_is_seen(
    call: str, number: int, size: int, garbage: bytes
) -> None:
    peer = Peer(size)
    peer.data.send(as_bytes(messages(call, size)[:number]) + garbage)
    with pytest.raises(OutOfStep):
        CALLS[call](peer.ring)
    peer.end()


@calls
def test_all_ranks_are_told_of_garbage_and_whose_it_is(call: str) -> None:
    def run(ring: Ring) -> None:
        if call == "broadcast":
            ring.broadcast(CONTENT if ring.rank == 1 else None, 1)
        else:
            CALLS[call](ring)
        ring.barrier()  # a rank that only sends has noticed nothing yet

    with rings(3) as made:
        made[1]._sockets[1].send(b"?" * HEADER.size)  # noqa: SLF001 -- to the right
        found = outcomes(made, run)
    assert [type(problem) for problem in found] == [OutOfStep] * 3
    assert [problem.rank for problem in found] == [1] * 3


def in_turn(call: str, size: int, *, then: str = "barrier") -> tuple[bytes, bytes]:
    """Return the messages of a left neighbour in a call, and in the next call."""
    first = messages(call, size)
    return as_bytes(first), as_bytes(messages(then, size, operation=len(first) + 1))


@sizes
@calls
def test_who_says_too_much_is_out_of_step_at_the_next_header(
    played: Callable[[int], Peer], call: str, size: int
) -> None:
    peer = played(size)
    first, second = in_turn(call, size)
    peer.data.send(first + b"x" + second)
    CALLS[call](peer.ring)
    with pytest.raises(OutOfStep, match=f"rank {peer.last} sent an invalid operation: b'xRING"):
        peer.ring.barrier()


@sizes
@calls
@pytest.mark.parametrize("missing", [1, 8])
def test_who_says_too_little_and_goes_on_is_out_of_step_at_the_next_header_at_the_latest(
    played: Callable[[int], Peer], call: str, size: int, missing: int
) -> None:
    """Until then, the beginning of that header was taken for the missing content."""
    peer = played(size)
    first, second = in_turn(call, size)
    peer.data.send(first[:-missing] + second)

    def both() -> None:
        CALLS[call](peer.ring)
        peer.ring.barrier()

    with pytest.raises(OutOfStep):
        both()


@sizes
def test_who_leaves_out_more_than_it_says_next_is_waited_for_as_one_that_computes(
    played: Callable[[int], Peer], size: int
) -> None:
    peer = played(size)
    peer.live()
    first, second = in_turn("sum", size)
    peer.data.send(first[: -2 * len(second)] + second)
    with ThreadPoolExecutor(1) as pool:
        summing = pool.submit(CALLS["sum"], peer.ring)
        while unread(peer.data):
            assert not summing.done()
            time.sleep(0.001)
        assert not summing.done()
        peer.ring.abort("as the watcher of stalls ends it")
        assert isinstance(summing.exception(SECONDS), Aborted)


def unread(connection: socket.socket) -> int:
    """Return how many bytes the other end has not read yet."""
    room = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
    return struct.unpack("i", room)[0]


@sizes
def test_a_changed_byte_of_the_content_is_taken_as_it_is(
    played: Callable[[int], Peer], size: int
) -> None:
    """Only the checksums of TCP and of the network below it prevent a wrong sum."""
    peer = played(size)
    wrong = bytearray(as_bytes(messages("sum", size)))
    wrong[-1] ^= 0x01
    peer.data.send(wrong)
    found = CALLS["sum"](peer.ring)
    assert np.flatnonzero(found != size * VALUES).tolist() == [len(VALUES) - 1]


@sizes
def test_lengths_that_were_changed_on_their_way_are_seen_at_the_next_header(
    played: Callable[[int], Peer], size: int
) -> None:
    peer = played(size)
    wrong = bytearray(as_bytes(messages("gather", size)))
    wrong[HEADER.size] ^= 0x01
    peer.data.send(wrong)
    with pytest.raises(OutOfStep):
        CALLS["gather"](peer.ring)

"""The peer watch looks at the peers' ports, over real sockets on this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.rendezvous.transport import signing
from entrypoint.rendezvous.transport.reasons import BlindError
from entrypoint.rendezvous.watch import peer_watch, tensorflow_server

TENSORFLOW = bytes.fromhex("000012040000000000")
"""The head of a SETTINGS frame. A gRPC server sends it first."""


@pytest.fixture
def listen() -> Iterator[Callable[..., Member]]:
    """Return a function that opens worker-1's port. The port sends some bytes to each client."""
    open_ports: list[socket.socket] = []

    def serve(says: bytes | None, host: str = "127.0.0.1") -> Member:
        port = socket.create_server(("127.0.0.1", 0))
        open_ports.append(port)
        loop = asyncio.get_running_loop()
        port.settimeout(0)

        def greet() -> None:
            connected, _ = port.accept()
            open_ports.append(connected)
            if says is None:
                connected.close()
            else:
                connected.sendall(says)

        loop.add_reader(port, greet)
        return Member(Task("worker", 1), Address(host, port.getsockname()[1]))

    yield serve
    for port in open_ports:
        port.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(peer_watch, "SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(peer_watch, "FIRST_BYTES_SECONDS", 0.2)


def seen(listen: Callable[..., Member], says: bytes | None, limit_seconds: float = 0.5) -> str:
    async def look() -> str:
        return await peer_watch.PeerWatch([listen(says)]).watch(limit_seconds)

    return asyncio.run(look())


@pytest.mark.parametrize("says", [TENSORFLOW, b""], ids=["TensorFlow", "a server that is silent"])
def test_a_peer_with_an_open_port_has_come_as_far(listen: Callable, says: bytes) -> None:
    assert seen(listen, says) == ""


def test_all_addresses_of_a_name_are_tried(
    listen: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Like localhost on a machine with IPv6: ::1 comes first, and nothing listens there.
    def both(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert host == "a-name"
        first = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        return [first, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def look() -> str:
        peer = listen(TENSORFLOW, "a-name")
        monkeypatch.setattr(socket, "getaddrinfo", both)
        return await peer_watch.PeerWatch([peer]).watch(0.5)

    assert asyncio.run(look()) == ""


def test_a_peer_at_the_gate_has_fallen_back(listen: Callable) -> None:
    assert "worker-1 is at the gate again" in seen(listen, signing.greeting("0" * 32))


def test_all_peers_at_the_gate_are_named(listen: Callable) -> None:
    greeting = signing.greeting("0" * 32)

    async def look() -> str:
        peers = [listen(greeting), replace(listen(greeting), task=Task("worker", 2))]
        return await peer_watch.PeerWatch(peers).watch(0.5)

    assert "worker-1, worker-2 are at the gate again" in asyncio.run(look())


def test_a_forwarder_with_nothing_behind_it_is_no_peer(listen: Callable) -> None:
    assert "accepted the connection and closed it at once" in seen(listen, None)


def test_a_peer_that_never_opens_its_port_is_named_at_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        free = port.getsockname()[1]
    peer = Member(Task("worker", 2), Address("127.0.0.1", free))

    async def look() -> str:
        return await peer_watch.PeerWatch([peer]).watch(0.3)

    said = asyncio.run(look())
    assert said.startswith("TensorFlow waited 0 s (STARTUP_TIMEOUT) for its peers: worker-2 at")
    assert "refused" in said


def test_a_watch_that_gets_no_thread_comes_to_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(_: threading.Thread) -> None:
        reason = "can't start new thread"  # as under docker run --pids-limit
        raise RuntimeError(reason)

    async def look() -> str:
        peer = Member(Task("worker", 1), Address("a-name", 2222))
        return await peer_watch.PeerWatch([peer]).watch(0.01)

    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(BlindError, match="limit of processes"):
        asyncio.run(look())


REFUSAL = bytes.fromhex("00000101050000000188")
"""gRPC answers an unknown call with headers that end it."""
STATUS = bytes.fromhex("000005000100000001") + bytes(5)
WAITING = bytes.fromhex("000017000100000001 0000000012 0a10 0a0a0a06776f726b65721001 1001 180a")


def watched(own: Member, peer: Member, limit_seconds: float = 0.3, *, trains: bool = False) -> str:
    """Return the verdict of the watch at a chief with one peer."""
    chief = replace(own, task=Task("worker", 0))
    spec = ClusterSpec((chief, peer))
    return peer_watch.watch_peers(
        spec, chief.task, limit_seconds, is_ring=lambda: False, trains=lambda: trains
    )


@pytest.fixture
def serve() -> Iterator[Callable[[bytes], Address]]:
    """Return a function that serves some bytes to each client, and returns the address."""
    ports: list[socket.socket] = []

    def start(says: bytes) -> Address:
        port = socket.create_server(("127.0.0.1", 0))
        ports.append(port)

        def answer() -> None:
            kept = []
            with contextlib.suppress(OSError):  # the port is closed at the end of the test
                while True:
                    kept.append(port.accept()[0])
                    kept[-1].sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        return Address("127.0.0.1", port.getsockname()[1])

    yield start
    for port in ports:
        port.shutdown(socket.SHUT_RDWR)
        port.close()


ABSENT = Member(Task("worker", 1), Address("127.0.0.1", 1))


def test_tensorflow_at_the_own_port_is_watched(serve: Callable) -> None:
    own = Member(Task("worker", 0), serve(TENSORFLOW + bytes(18) + STATUS + REFUSAL))
    assert "worker-1 at" in watched(own, ABSENT)


@pytest.mark.parametrize(
    "says", [TENSORFLOW + bytes(18) + REFUSAL, b"", b"220 hello\r\n" * 2], ids=["gRPC", "-", "text"]
)
def test_what_is_not_tensorflow_at_the_own_port_waits_for_nobody(
    serve: Callable, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    # Such as JAX's coordinator or torch's store.
    monkeypatch.setattr(peer_watch, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(tensorflow_server, "ANSWER_SECONDS", 0.1)
    assert watched(Member(Task("worker", 0), serve(says)), ABSENT) == ""


def test_a_peer_with_an_open_port_that_does_not_join_is_named_at_the_limit(serve: Callable) -> None:
    own = Member(Task("worker", 0), serve(TENSORFLOW + bytes(18) + WAITING + REFUSAL))
    peer = Member(Task("worker", 1), serve(TENSORFLOW))
    said = watched(own, peer)
    assert "worker-1 at" in said
    assert "has not joined" in said
    assert "worker-0" not in said


def test_a_command_that_trains_waits_for_nobody(serve: Callable) -> None:
    own = Member(Task("worker", 0), serve(TENSORFLOW + bytes(18) + WAITING + REFUSAL))
    assert watched(own, Member(Task("worker", 1), serve(TENSORFLOW)), trains=True) == ""


def test_a_chief_that_cannot_be_asked_ends_nobody(
    serve: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorflow_server, "ANSWER_SECONDS", 0.1)
    chief = Member(Task("worker", 0), serve(TENSORFLOW))  # and nothing more
    own = Member(Task("worker", 1), serve(TENSORFLOW + bytes(18) + STATUS + REFUSAL))
    with pytest.raises(peer_watch.NotKnownError, match="cannot be asked"):
        peer_watch.watch_peers(
            ClusterSpec((chief, own)), own.task, 0.3, is_ring=lambda: False, trains=lambda: False
        )


def test_a_ring_that_formed_between_two_looks_ends_the_watch() -> None:
    looks = iter([False, True])
    spec = ClusterSpec((replace(ABSENT, task=Task("worker", 0)), ABSENT))
    assert (
        peer_watch.watch_peers(
            spec, ABSENT.task, 0, is_ring=lambda: next(looks), trains=lambda: False
        )
        == ""
    )


def test_knows_whether_a_port_is_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        number = port.getsockname()[1]
        assert peer_watch.is_listening(number)
    assert not peer_watch.is_listening(number)

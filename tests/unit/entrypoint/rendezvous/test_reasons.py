"""Each reason why a worker is missing has words of its own."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from entrypoint.rendezvous.transport import reasons

# The bytes that TensorFlow 2.21's server sends to a client that says nothing.
GRPC = bytes.fromhex("000018040000000000000400400000000500400000000600004000fe0300000001")


@contextmanager
def answering(port: int, reply: bytes | None, *, close: bool = False) -> Iterator[None]:
    """Listen on a port and send each client the same reply (None: accept no client)."""
    open_ones: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            accepted.sendall(reply or b"")
            accepted.close() if close else open_ones.append(accepted)

    with socket.create_server(("", port)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start() if reply is not None else None
        yield
        listener.shutdown(socket.SHUT_RDWR)
    for accepted in open_ones:
        accepted.close()


@pytest.mark.parametrize(
    ("reply", "close", "reason"),
    [
        (None, False, "accepted the connection, but says nothing"),
        (b"", True, "closed it at once: probably Docker's port forwarding"),
        (b"SSH-2.0-OpenSSH\r\n", False, 'something that is not a worker (it says "SSH-2.0-OpenSSH'),
        (GRPC, False, "answered by a gRPC server, probably TensorFlow of an earlier run"),
        (b"cluster-trainer-gate 2 x\n", False, "version 2 of the gate, not 1"),
        (b"cluster-trainer-gate" * 99, False, "something that is not a worker"),
    ],
)
@pytest.mark.parametrize("missing", [0, 1])
def test_says_what_answers_in_a_workers_place(cluster, missing, reply, close, reason):
    two = cluster(2)
    with answering(two.member(missing).address.port, reply, close=close):
        waiting = two.start(1 - missing)
        waiting.wait_for(f"worker-{missing} at {two.member(missing).address}", reason)
    two.start(missing)
    assert waiting.end() is None


def test_says_that_a_name_does_not_resolve(cluster):
    two = cluster(2)
    spec = two.moved(worker_1="no-such-host.invalid:2222")
    worker = two.start(0, spec=spec, timeout_seconds=0.7)
    worker.wait_for("worker-1 at no-such-host.invalid:2222: the name does not resolve")


def test_says_that_nothing_answers(cluster):
    two = cluster(2)
    # Linux drops connections to a listener whose queue is full, as a firewall would.
    with socket.create_server(("", two.member(1).address.port), backlog=0):
        fill = socket.create_connection(("127.0.0.1", two.member(1).address.port))
        waiting = two.start(0)
        waiting.wait_for("worker-1", "no answer: a firewall drops it, the machine is off, or")
        fill.close()
    two.start(1)
    assert waiting.end() is None


def test_says_that_a_worker_came_but_cannot_be_dialled_back(cluster, forward):
    two = cluster(2)
    elsewhere = two.moved(worker_1=str(cluster(1).member(0).address))
    workers = [two.start(0), two.start(1, spec=elsewhere)]
    for worker in workers:
        line = worker.wait_for("checked in from 127.0.0.1, but does not answer at its advertised")
        assert "waiting for 1 of 2" in line
        assert "address (refused: " in line
    forward(elsewhere.members[1].address.port, two.member(1).address.port)
    assert [worker.end() for worker in workers] == [None, None]


def test_says_that_a_worker_that_answers_cannot_reach_the_chief(cluster):
    two = cluster(2)
    lost = two.moved(worker_0=str(cluster(1).member(0).address))
    member, chief = two.start(1, spec=lost, timeout_seconds=0.7), two.start(0, timeout_seconds=0.7)
    line = chief.wait_for("worker-1", "it is running and answers, but has not checked in")
    assert "the chief's address: refused" in line
    member.wait_for("waiting for worker-0", "refused")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EHOSTUNREACH, reasons.UNREACHABLE),
        (errno.ENETUNREACH, reasons.NO_NETWORK),
        (errno.EPERM, reasons.NOT_ALLOWED),
        (errno.ETIMEDOUT, reasons.NO_ANSWER),
        (errno.EADDRNOTAVAIL, "cannot be dialled: Cannot assign requested address"),
    ],
)
def test_every_error_of_connecting_has_words(code, reason):
    assert reasons.words(OSError(code, "Cannot assign requested address")) == reason

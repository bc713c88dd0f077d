"""The trainer's side of the socket on which it asks the entrypoint for its neighbours."""

import contextlib
import json
import os
import socket
import threading

import pytest

from cluster_trainer.collectives.neighbours import NeighboursError, join

PLACE = {"rank": 1, "size": 3, "generation": 7}


@pytest.fixture
def asked():
    """Return a function that asks an entrypoint which answers with these packets."""
    own, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def ask(*answers):
        def answer():
            number = json.loads(own.recv(4096))["number"]
            for content, sockets in answers:
                shown = {"number": number, **content} if isinstance(content, dict) else content
                packet = shown if isinstance(shown, bytes) else json.dumps(shown).encode()
                socket.send_fds(own, [packet], [one.fileno() for one in sockets])

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            return join({"CLUSTER_GROUP_FD": str(commands.fileno())})
        finally:
            thread.join()

    with own, commands:
        yield ask


@pytest.fixture
def pairs():
    with contextlib.ExitStack() as stack:
        yield [[stack.enter_context(one) for one in socket.socketpair()] for _ in range(2)]


def test_without_the_variable_there_are_no_neighbours():
    assert join({"TF_CONFIG": "{}"}) is None


def test_takes_both_connections_in_their_order(asked, pairs):
    (left, far_left), (right, far_right) = pairs
    found = asked((PLACE, [left, right]))
    assert (found.rank, found.size, found.generation) == (1, 3, 7)
    far_left.sendall(b"left")
    far_right.sendall(b"right")
    with found.left, found.right:
        assert (found.left.recv(10), found.right.recv(10)) == (b"left", b"right")
        assert found.left.getblocking()
        assert not os.get_inheritable(found.left.fileno())


def test_the_answer_to_another_ask_is_closed(asked, pairs):
    (left, far_left), (right, _) = pairs
    found = asked(({"number": "another", **PLACE}, [left, right]), (PLACE, [left, right]))
    for one in (left, right, found.left, found.right):
        one.close()
    assert far_left.recv(10) == b""


def test_an_error_has_the_entrypoints_text_and_code(asked):
    with pytest.raises(NeighboursError, match="worker-2 at c:2222: refused") as caught:
        asked(({"error": "worker-2 at c:2222: refused", "code": 78}, []))
    assert caught.value.code == 78


@pytest.mark.parametrize(
    "answer", [b"no JSON", b"[]", PLACE, {"rank": "x", "size": 2, "generation": 1}]
)
def test_an_answer_that_makes_no_sense_is_said_so(asked, answer):
    with pytest.raises(NeighboursError, match="the entrypoint"):
        asked((answer, []))


def test_an_entrypoint_that_has_ended_is_said_so():
    own, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.close()
    with commands, pytest.raises(NeighboursError, match="the entrypoint does not answer"):
        join({"CLUSTER_GROUP_FD": str(commands.fileno())})


@pytest.mark.parametrize("text", ["", "x", "none: no room", "99999", "-1"])
def test_what_is_no_file_descriptor_is_said_so(text):
    with pytest.raises(NeighboursError, match="is not the entrypoint's socket") as caught:
        join({"CLUSTER_GROUP_FD": text})
    assert caught.value.code == 78
    assert repr(text) in str(caught.value)


def test_another_file_or_socket_is_left_as_it_is(tmp_path):
    with (tmp_path / "file").open("w") as file, socket.socket() as other:
        for one in (file, other):
            with pytest.raises(NeighboursError, match="pass_fds"):
                join({"CLUSTER_GROUP_FD": str(one.fileno())})
            os.fstat(one.fileno())

"""The trainer's side of the socket on which it asks the entrypoint for its neighbours."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cluster_trainer.collectives import neighbours
from cluster_trainer.collectives.neighbours import NeighboursError, join, who_waits

ROOT = Path(__file__).resolve().parents[3]
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


def test_signs_of_life_are_no_answer(asked, pairs):
    (left, _), (right, _) = pairs
    found = asked(*[(b'{"forming": true}', [])] * 3, (PLACE, [left, right]))
    assert found.rank == 1
    for one in (found.left, found.right):
        one.close()


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(neighbours, "SILENT_SECONDS", 1)


@pytest.mark.usefixtures("short")
def test_an_entrypoint_that_hangs_is_not_waited_for(told):
    own, environ = told
    with pytest.raises(NeighboursError, match="has said nothing for 1 s") as caught:
        join(environ)
    assert caught.value.code == 75
    assert own.recv(4096)  # the ask


@pytest.mark.usefixtures("short")
def test_one_that_lives_is_waited_for(told, pairs):
    own, environ = told
    ends = [left for left, _ in pairs]

    def answer():
        number = json.loads(own.recv(4096))["number"]
        for _ in range(3):
            time.sleep(0.5)
            own.send(b'{"forming": true}')
        packet = json.dumps({"number": number, **PLACE}).encode()
        socket.send_fds(own, [packet], [one.fileno() for one in ends])

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    found = join(environ)
    thread.join()
    assert found.rank == 1
    for one in (found.left, found.right):
        one.close()


# Frozen for longer than its limit of 2 s, as in a container that is paused with its entrypoint.
FROZEN = f"""
import sys
sys.path.insert(0, {str(ROOT / "trainer")!r})
from cluster_trainer.collectives import neighbours
neighbours.SILENT_SECONDS = 2
found = neighbours.join({{"CLUSTER_GROUP_FD": sys.argv[1]}})
print(found.rank)
"""


@pytest.mark.long
def test_time_in_which_it_stood_still_itself_is_not_counted(pairs):
    own, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own, commands:
        number = str(commands.fileno())
        process = subprocess.Popen(
            [sys.executable, "-c", FROZEN, number],
            pass_fds=[commands.fileno()],
            stdout=subprocess.PIPE,
        )
        asked = json.loads(own.recv(4096))["number"]
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)  # the entrypoint needs its time, too
        packet = json.dumps({"number": asked, **PLACE}).encode()
        socket.send_fds(own, [packet], [left.fileno() for left, _ in pairs])
        assert process.communicate(timeout=30)[0] == b"1\n"


@pytest.fixture
def default_timeout():
    """Return a function that sets a default timeout, as a script may do for its downloads."""
    yield socket.setdefaulttimeout
    socket.setdefaulttimeout(None)


def test_a_scripts_default_for_its_sockets_is_none_for_these(pairs, default_timeout):
    default_timeout(0.1)
    own, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = [left for left, _ in pairs]

    def answer():
        number = json.loads(own.recv(4096))["number"]
        time.sleep(0.3)
        packet = json.dumps({"number": number, **PLACE}).encode()
        socket.send_fds(own, [packet], [one.fileno() for one in ends])

    thread = threading.Thread(target=answer, daemon=True)
    with own, commands:
        own.settimeout(None)
        thread.start()
        found = join({"CLUSTER_GROUP_FD": str(commands.fileno())})
        thread.join()
    for one in (found.left, found.right):
        assert one.gettimeout() is None
        assert os.get_blocking(one.fileno())
        one.close()


def test_the_answer_to_another_ask_is_closed(asked, pairs):
    (left, far_left), (right, _) = pairs
    found = asked(({"number": "another", **PLACE}, [left, right]), (PLACE, [left, right]))
    for one in (left, right, found.left, found.right):
        one.close()
    assert far_left.recv(10) == b""


def test_all_workers_are_members_unless_the_answer_says_who_is(asked, pairs):
    ends = [left for left, _ in pairs]
    found = [asked((PLACE, ends)), asked(({**PLACE, "members": [0, 2, 5]}, ends))]
    assert [one.members for one in found] == [(0, 1, 2), (0, 2, 5)]
    for one in found:
        one.left.close()
        one.right.close()


@pytest.mark.parametrize("members", [[0, 1], [0, 2, 1], [0, 1, 1], ["x", 1, 2], 3, None])
def test_members_that_are_none_of_such_a_ring_are_said_so(asked, pairs, members):
    (left, far_left), (right, _) = pairs
    with pytest.raises(NeighboursError, match="cannot be read"):
        asked(({**PLACE, "members": members}, [left, right]))
    left.close()
    assert far_left.recv(10) == b""


def test_news_of_who_waits_is_no_answer(asked, pairs):
    (left, far_left), (right, _) = pairs
    news = b'{"waiting": ["worker-2"]}'
    found = asked((news, [left, right]), (PLACE, [left, right]))
    assert found.rank == 1
    for one in (left, right, found.left, found.right):
        one.close()
    assert far_left.recv(10) == b""


@pytest.fixture
def told():
    """Return the entrypoint's end of the socket, and the variables that its command gets."""
    own, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own, commands:
        yield own, {"CLUSTER_GROUP_FD": str(commands.fileno())}


def test_who_waits_is_the_newest_news_which_is_told_once(told):
    own, environ = told
    assert who_waits(environ) is None
    for names in (["worker-2"], ["worker-2", "worker-4"]):
        own.send(json.dumps({"waiting": names}).encode())
    assert who_waits(environ) == ("worker-2", "worker-4")
    assert who_waits(environ) is None


def test_who_waits_is_known_at_once_whatever_a_scripts_default_is(told, default_timeout):
    default_timeout(5)
    began = time.monotonic()
    assert who_waits(told[1]) is None
    assert time.monotonic() - began < 1


def test_news_that_make_no_sense_are_none(told, pairs):
    own, environ = told
    (left, far_left), _ = pairs
    socket.send_fds(own, [json.dumps({"number": "old", **PLACE}).encode()], [left.fileno()])
    own.send(b'{"waiting": "worker-2"}')
    left.close()
    assert who_waits(environ) is None
    assert far_left.recv(10) == b""  # a socket that is not taken is closed
    own.send(b"no JSON")
    assert who_waits(environ) is None
    own.close()
    assert who_waits(environ) is None


@pytest.mark.parametrize("environ", [{}, {"CLUSTER_GROUP_FD": "99999"}])
def test_without_the_entrypoints_socket_nobody_waits(environ):
    assert who_waits(environ) is None


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

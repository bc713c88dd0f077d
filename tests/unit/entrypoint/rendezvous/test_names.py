"""A name server that does not answer delays no worker beyond the time limit."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.cluster import look_ups
from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport.names import MOST_QUESTIONS, Names
from entrypoint.rendezvous.transport.reasons import NO_NAME, NO_NAME_SERVER, PeerError

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable], None]:
    """Return a function that replaces `socket.getaddrinfo`."""

    def replace(look_up: Callable) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return replace


def look_up(*hosts: str, seconds: float = 0.3, again: float | None = None) -> list[object]:
    """Look up all hosts at the same time. Return endpoints or reasons."""

    async def ask() -> list[object]:
        asked = Names(seconds, again)
        answers = await asyncio.gather(
            *(asked.look_up(Address(host, 2222)) for host in hosts), return_exceptions=True
        )
        return [str(a) if isinstance(a, PeerError) else a[0][1][:2] for a in answers]

    return asyncio.run(ask())


def test_addresses_need_no_name_server(name_server):
    name_server(lambda *_, **__: pytest.fail("asked"))
    assert look_up("10.0.0.1", "fd00::1") == [("10.0.0.1", 2222), ("fd00::1", 2222)]


def test_a_name_has_its_addresses():
    assert look_up("localhost")[0][0] in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "?"), NO_NAME),
        (socket.gaierror(socket.EAI_AGAIN, "?"), NO_NAME_SERVER),
        (UnicodeError(), NO_NAME),
    ],
)
def test_a_name_that_does_not_resolve_has_a_reason(name_server, error, reason):
    def fail(*_: object, **__: object) -> None:
        raise error

    name_server(fail)
    assert look_up("a") == [reason]


def test_a_name_that_is_not_there_yet_is_not_called_misspelt_first():
    """A cluster's name server lists a new pod or container only after seconds."""
    assert NO_NAME.index("does not know it yet") < NO_NAME.index("misspelt")


def test_a_name_that_comes_while_its_server_is_silent_is_found_at_once(name_server):
    released, asked = threading.Event(), []

    def there_since_the_first_time(*_: object, **__: object) -> list[tuple]:
        asked.append(1)
        if len(asked) == 1:
            released.wait(20)
        return [(socket.AF_INET, 0, 0, "", ("10.0.0.7", 2222))]

    name_server(there_since_the_first_time)
    begin = time.monotonic()
    assert look_up("a", seconds=20, again=0.1) == [("10.0.0.7", 2222)]
    assert time.monotonic() - begin < 10
    released.set()


def test_a_silent_name_server_holds_nobody(name_server):
    released = threading.Event()
    name_server(lambda *_, **__: released.wait(10) and [])
    begin = time.monotonic()
    assert look_up("a", "a", "b") == [NO_NAME_SERVER] * 3
    assert time.monotonic() - begin < 2
    released.set()


def test_a_thousand_names_are_asked_for_so_many_at_a_time(name_server):
    running, most = threading.Semaphore(look_ups.AT_ONCE), []

    def answer(_: str, port: int, **__: object) -> list[object]:
        most.append(running.acquire(blocking=False))
        time.sleep(0.02)
        running.release()
        return [(socket.AF_INET, 0, 0, "", ("10.0.0.1", port))]

    name_server(answer)
    hosts = [f"worker-{index}" for index in range(1000)]
    assert look_up(*hosts, seconds=20) == [("10.0.0.1", 2222)] * 1000
    assert all(most)


def test_a_look_up_that_hangs_does_not_hold_the_end_of_the_process():
    program = f"""
import sys, socket, time
sys.path.insert(0, {str(ROOT)!r})
socket.getaddrinfo = lambda *_, **__: time.sleep(20)
from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.gate import pass_gate
from entrypoint.rendezvous.outcome import PeersMissingError
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.timing import Timing
spec = ClusterSpec.of_workers([Address("127.0.0.1", 0), Address("hangs", 2222)])
facts = Facts(hosts=(), image="", tensorflow="", gpus_per_worker="", settings={{}})
try:
    pass_gate(Terms(spec=spec, task=spec.chief.task, facts=facts, timeout_seconds=0.5, token=None,
                    say=print, timing=Timing(probe_seconds=0.1)))
except PeersMissingError as error:
    print(error)
"""
    begin = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert "worker-1 at hangs:2222" in ended.stdout
    assert time.monotonic() - begin < 10


def test_a_name_server_that_says_nothing_is_not_asked_without_end(name_server):
    asked, answer = [], threading.Event()

    def wait(*question: object, **_: object) -> list[object]:
        asked.append(question)
        answer.wait(20)
        return []

    name_server(wait)
    assert look_up("a", seconds=0.5, again=0.01) == [NO_NAME_SERVER]
    answer.set()
    assert len(asked) == MOST_QUESTIONS

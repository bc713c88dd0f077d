"""A worker without WORKER_INDEX finds itself in the list, or says what it compared."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from entrypoint.cluster import own_machine as machines
from entrypoint.cluster.own_machine import Machine


def machine(name: str, *addresses: str, **names: str) -> Machine:
    """Return a machine with a name, its addresses, and the names that its name server knows."""

    def resolve(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
        known = {host: (names.get(host.replace("-", "_"), host),) for host in hosts}
        return {host: found for host, found in known.items() if found[0][0] in "0123456789"}

    return Machine(name, addresses.__contains__, resolve)


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        (machine("Worker-1"), "worker-1 is this machine's name"),
        (
            machine("x", "10.0.0.2", worker_1="10.0.0.2"),
            "worker-1 is 10.0.0.2, this machine's address",
        ),
    ],
)
def test_finds_itself_by_name_or_address(answer: Callable, here: Machine, reason: str) -> None:
    found = answer({"WORKER_HOSTS": "worker-0,worker-1"}, here)
    assert found.own_task.reason == reason
    assert json.loads(found.tf_config_text)["task"] == {"type": "worker", "index": 1}


def test_finds_itself_by_a_literal_address(answer: Callable) -> None:
    found = answer({"WORKER_HOSTS": "10.0.0.1,10.0.0.2"}, machine("x", "10.0.0.2"))
    assert found.own_task.reason == "10.0.0.2 is this machine's address"


def test_refuses_when_no_entry_is_this_machine(refused: Callable) -> None:
    here = machine("x", "10.9.9.9")
    (problem,) = refused({"WORKER_HOSTS": "10.0.0.1,worker-1"}, here)
    assert (problem.name, problem.received) == ("WORKER_INDEX", None)
    assert problem.accepted.startswith("0 to 1")
    assert 'name "x"' in problem.advice
    assert "none of 10.0.0.1, worker-1 is this one" in problem.advice
    assert "not resolved: worker-1" in problem.advice


def test_refuses_when_several_entries_are_this_machine(refused: Callable) -> None:
    environ = {"WORKER_HOSTS": "localhost:20000,localhost:20001"}
    (problem,) = refused(environ, machine("x", "127.0.0.1", localhost="127.0.0.1"))
    assert problem.advice.count("localhost is 127.0.0.1, this machine's address") == 2


def test_an_index_that_is_given_needs_no_name_server(answer: Callable) -> None:
    def never(_: Iterable[str]) -> dict[str, tuple[str, ...]]:
        raise AssertionError

    here = Machine("x", bool, never)
    assert answer({"WORKER_HOSTS": "a,b", "WORKER_INDEX": "1"}, here).resolution.rank == 1


def test_a_loopback_address_is_this_machines() -> None:
    assert machines.has_address("127.0.0.1")
    assert not machines.has_address("192.0.2.1")  # TEST-NET-1: nobody's
    assert not machines.has_address("2001:db8::1")


def test_resolves_addresses_to_themselves() -> None:
    assert machines.resolve(["127.0.0.1", "192.0.2.1"]) == {
        "127.0.0.1": ("127.0.0.1",),
        "192.0.2.1": ("192.0.2.1",),
    }


def test_a_name_server_that_does_not_answer_costs_no_more_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *arguments: object, **options: object) -> object:
        if host == "slow":
            released.wait(10)
        return real("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    begin = time.perf_counter()
    found = machines.resolve(["slow", "fast"], seconds=0.2)
    seconds = time.perf_counter() - begin
    released.set()
    assert found == {"fast": ("127.0.0.1",)}
    assert seconds < 0.5


LIST = "worker-0,worker-1"
# Code that replaces the name server. The code of the start follows it.
NAMES = "import socket, time; real = socket.getaddrinfo; socket.gethostname = lambda: 'x'; "
HANG = "socket.getaddrinfo = lambda *_, **__: time.sleep(20); "
NO_NAME = "def no(*_, **__): raise socket.gaierror(socket.{error}, '')\nsocket.getaddrinfo = no\n"
SLOW = """
def slow(host, *more, **named):
    if host in ("worker-0", "worker-1"):
        time.sleep(0.7)
        return real({"worker-0": "127.0.0.1", "worker-1": "192.0.2.1"}[host], *more, **named)
    time.sleep(20)
socket.getaddrinfo = slow
"""


def started(
    entrypoint: tuple[str, ...], names: str, hosts: str = LIST, **environ: str
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Start with such a name server. Return the ended process, and the seconds that it took."""
    *python, start = entrypoint
    begin = time.perf_counter()
    child = subprocess.run(
        [*python, f"{NAMES}\n{names}\n{start}", "true"],
        env={"WORKER_HOSTS": hosts, "RENDEZVOUS_TIMEOUT": "0"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return child, time.perf_counter() - begin


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(HANG, id="silent", marks=pytest.mark.long),
        pytest.param(NO_NAME.format(error="EAI_AGAIN"), id="busy"),
    ],
)
def test_a_name_server_that_does_not_answer_is_no_wrong_configuration(
    entrypoint: tuple[str, ...], names: str
) -> None:
    child, seconds = started(entrypoint, names)
    assert child.returncode == 75
    assert "not resolved: worker-0, worker-1" in child.stderr
    assert seconds < 10


def test_the_code_for_that_can_be_chosen(entrypoint: tuple[str, ...]) -> None:
    busy = NO_NAME.format(error="EAI_AGAIN")
    assert started(entrypoint, busy, PEER_LOST_EXIT_CODE="203")[0].returncode == 203


@pytest.mark.parametrize(
    ("names", "environ"),
    [
        (NO_NAME.format(error="EAI_NONAME"), {}),
        (NO_NAME.format(error="EAI_AGAIN"), {"MAX_RESTARTS": "x"}),
    ],
    ids=["no such name", "and something is wrong"],
)
def test_what_is_decided_is_refused(
    entrypoint: tuple[str, ...], names: str, environ: dict[str, str]
) -> None:
    assert started(entrypoint, names, **environ)[0].returncode == 78


def test_an_own_name_that_is_slow_is_waited_for_among_many_silent_ones(
    entrypoint: tuple[str, ...],
) -> None:
    silent = [f"silent-{number}" for number in range(80)]
    child, seconds = started(entrypoint, SLOW, ",".join([*silent, *LIST.split(",")]))
    assert child.returncode == 0, child.stderr
    assert "worker-80 of 82" in child.stderr
    assert seconds < 4


def test_a_thousand_names_are_asked_for_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> list[object]:
        time.sleep(0.005)
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert len(machines.resolve([f"worker-{i}" for i in range(1000)])) == 1000

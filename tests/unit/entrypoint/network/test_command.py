"""`network`: several entrypoints measure this machine's loopback together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from entrypoint.network.link import read_link
from harness.ports import free_ports

pytestmark = pytest.mark.slow

SECONDS = 60.0


class Machines:
    """The machines of one list, each a process."""

    def __init__(self, entrypoint: tuple[str, ...], folder: str, count: int) -> None:
        self._entrypoint, self._folder = entrypoint, folder
        self.addresses = [
            f"127.0.0.{rank + 1}:{port}" for rank, port in enumerate(free_ports(count))
        ]
        self.started: list[subprocess.Popen[str]] = []

    def start(self, rank: int, *command: str, **environ: str) -> subprocess.Popen[str]:
        own = {"PATH": os.environ["PATH"], "WORKER_HOSTS": ",".join(self.addresses)}
        own |= {"WORKER_INDEX": str(rank), "TMPDIR": self._folder}
        self.started.append(
            subprocess.Popen(
                [*self._entrypoint, *(command or ("network",))],
                env=own | environ,
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self.started[-1]


Ended = tuple[int, str, str]


def ends(*processes: subprocess.Popen[str]) -> list[Ended]:
    said = [process.communicate(timeout=SECONDS) for process in processes]
    return [(one.returncode, *texts) for one, texts in zip(processes, said, strict=True)]


@pytest.fixture
def machines(entrypoint, tmp_path) -> Iterator[Callable[[int], Machines]]:
    made: list[Machines] = []

    def make(count: int) -> Machines:
        made.append(Machines(entrypoint, str(tmp_path), count))
        return made[-1]

    yield make
    for one in made:
        for process in one.started:
            process.kill()
            process.communicate()


def test_all_machines_print_the_same_links(machines):
    three = machines(3)
    question = ("network", "--json", "--parameters", "25e6", "--step-ms", "250")
    ended = ends(*(three.start(rank, *question) for rank in range(3)))
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    assert len({out for _, out, _ in ended}) == 1
    found = json.loads(ended[0][1])
    assert [read_link(one).name for one in found["links"]] == [
        *("worker-0 -> worker-1", "worker-1 -> worker-2", "worker-2 -> worker-0")
    ]
    assert all(read_link(one).bits_per_second > 1e8 for one in found["links"])
    assert len(found["estimates"]) == 3


@pytest.mark.parametrize("environ", [{}, {"MIN_WORKERS": "2", "REGROUP_SECONDS": "1"}])
def test_a_machine_that_is_missing_is_named(machines, environ):
    three, limit = machines(3), {"RENDEZVOUS_TIMEOUT": "4"}
    for code, out, err in ends(*(three.start(rank, **environ, **limit) for rank in range(2))):
        assert (code, out) == (75, "")
        assert f"worker-2 at {three.addresses[2]}" in err.splitlines()[-1]


def test_a_machine_that_runs_something_else_is_named(machines):
    two = machines(2)
    for code, _, err in ends(two.start(0), two.start(1, "echo", "network")):
        assert code == 78, err
        assert "command of worker-1" in err


def test_a_token_is_needed_where_the_others_have_one(machines):
    two = machines(2)
    limit = {"RENDEZVOUS_TIMEOUT": "4"}
    given = two.start(0, CLUSTER_TOKEN="a secret that they share", **limit)
    assert [code for code, _, _ in ends(given, two.start(1, **limit))] == [75, 75]


@pytest.mark.parametrize("environ", [{"CLUSTER_SOURCE": "none"}, {"WORKER_HOSTS": "127.0.0.1"}])
def test_a_machine_alone_has_no_network(machines, environ):
    ((code, out, err),) = ends(machines(1).start(0, **environ))
    assert (code, out) == (78, "")
    assert "network: received" in err


def test_wrong_arguments_are_refused_before_anybody_is_met(machines):
    ((code, _, err),) = ends(machines(2).start(0, "network", "--parameters", "many"))
    assert code == 78
    assert 'network --parameters: received "many"' in err


def test_a_stop_ends_the_wait(machines):
    process = machines(2).start(0)
    for line in process.stderr:
        if "worker-1 at" in line:
            break
    process.send_signal(signal.SIGTERM)
    ((code, out, _),) = ends(process)
    assert (code, out) == (143, "")

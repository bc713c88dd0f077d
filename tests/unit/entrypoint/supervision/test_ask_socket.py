"""Entrypoints whose commands ask for their neighbours, as processes on this machine's loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.ports import free_ports

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT / "trainer")!r})
from cluster_trainer.collectives.neighbours import NeighboursError, join
time.sleep(float(os.environ.get("LATE", 0)))
try:
    found = join(os.environ)
except NeighboursError as error:
    print(error)
    sys.exit(error.code)
if found is None:
    sys.exit("nobody there")
found.right.sendall(b"%d" % found.rank)
print(found.rank, found.size, found.left.recv(10).decode(), flush=True)
"""
IN_A_CHILD = """
if (child := os.fork()):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
ASK = f"{PROGRAM.replace('from cluster', IN_A_CHILD + 'from cluster', 1)}"


def start(program: str, size: int, **settings: str) -> list[subprocess.Popen[str]]:
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(size))
    environ = {
        **os.environ,
        "WORKER_HOSTS": hosts,
        "MAX_RESTARTS": "0",
        "CLUSTER_TOKEN": "a secret that they share",
        **settings,
    }
    late = environ.pop("LATE", "0")
    return [
        subprocess.Popen(
            [sys.executable, "-m", "entrypoint", sys.executable, "-c", program],
            cwd=ROOT,
            env={**environ, "WORKER_INDEX": str(rank), "LATE": "0" if rank else late},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def ended(workers: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    outputs = [one.communicate(timeout=60) for one in workers]
    return [(one.returncode, *output) for one, output in zip(workers, outputs, strict=True)]


def test_a_command_and_its_child_process_can_ask():
    found = ended(start(ASK, 3))
    assert [(code, out) for code, out, _ in found] == [
        (0, "0 3 2\n"),
        (0, "1 3 0\n"),
        (0, "2 3 1\n"),
    ], found
    assert all("3 workers are a ring, generation" in err for _, _, err in found)


def test_a_worker_that_is_alone_has_nobody_to_ask():
    ((code, _, err),) = ended(start(ASK, 1))
    assert code == 1
    assert "nobody there" in err


@pytest.mark.long  # rendezvous/test_peer_watch.py
def test_the_watch_over_the_peers_leaves_a_ring_alone():
    # The watch sees this worker's port open for 2 s, and gives the peers 4 s to open theirs.
    program = f"{ASK}time.sleep(5)\n"
    found = ended(start(program, 2, LATE="2", STARTUP_TIMEOUT="4"))
    assert [code for code, *_ in found] == [0, 0], found


def test_a_command_whose_neighbour_does_not_come_ends_with_75_and_says_why():
    _, (code, out, err) = ended(start(ASK, 2, LATE="2", STARTUP_TIMEOUT="1"))
    assert code == 75
    assert "gave up after 1 s" in out
    assert "worker-0 at 127.0.0.1:" in out
    assert "exit code 75" in err


def test_the_others_wait_at_the_gate_for_one_that_crashes_before_it_asks():
    crash = "os.environ['WORKER_INDEX'] == '1' and os.environ['RESTART_COUNT'] == '0'"
    program = f"import os, sys\nif {crash}: sys.exit(1)\n{ASK}"
    found = ended(start(program, 2, MAX_RESTARTS="2"))
    assert [code for code, *_ in found] == [0, 0], found
    (_, out, err), _ = found
    assert out == "0 2 1\n"
    assert "restart" not in err


# A command ends with an unread answer. Its end resets the connection.
DOES_NOT_READ = """
import select, sys
from entrypoint.supervision.peers.ask_socket import AskSocket

def serve(asks, _):
    asks.send(b"an answer")
    while asks.recv(100):
        pass

asks = AskSocket(serve, "", lambda: None)
asks._commands.send(b"an ask")
select.select([asks._commands], [], [])
asks.give_up()
sys.exit(asks._helper.child.wait())
"""


# Another connection is reset, and the command goes on.
IS_RESET = DOES_NOT_READ.replace("    while", "    raise ConnectionResetError\n    while").replace(
    "asks.give_up()\nsys.exit(asks._helper.child.wait())", "sys.exit(asks._helper.child.wait())"
)


def test_a_command_that_ends_with_unread_answers_leaves_no_traceback():
    line = [sys.executable, "-c", DOES_NOT_READ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_connection_that_is_reset_is_not_taken_for_the_commands_end():
    line = [sys.executable, "-c", IS_RESET]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "ConnectionResetError" in done.stderr

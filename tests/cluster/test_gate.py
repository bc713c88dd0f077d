"""The gate in real containers: it tells every worker which workers are missing or disagree.

The command prints a word instead of training, since the gate comes before it. The tests in
tests/unit/entrypoint/rendezvous cover all contradictions and all reasons, in processes. A test here
that repeats one of them is `long`.
"""

import os
import re
import shutil
import subprocess
import time

import pytest

from harness.ended import wait_for_end
from harness.waiting import logs_of, pause, wait_for_text, wait_until

COMMAND = ("bash", "-c", "echo started $TF_CONFIG")
# Joins a ring without importing TensorFlow, and prints the message of its left neighbour.
ASK = """
import os
from cluster_trainer.collectives.neighbours import join
found = join(os.environ)
found.right.sendall(b"%d" % found.rank)
print("ring", found.rank, found.size, found.left.recv(10).decode())
"""
LATE_SECONDS = 12
BOUND_SECONDS = 6
# For the start and end of the container and of Python, beyond the bound.
ENGINE_SECONDS = 15
BOUND = {"RENDEZVOUS_TIMEOUT": str(BOUND_SECONDS)}
# Far longer than starting all containers and finding a contradiction may take.
PATIENT = {"RENDEZVOUS_TIMEOUT": "300"}
AT_ONCE_SECONDS = 15


def end_of(containers, timeout_seconds=90):
    return [wait_for_end(container, timeout_seconds) for container in containers]


def wait_for_line(container, *parts):
    """Wait until the container has printed a line with every part."""
    lines = lambda: logs_of(container).splitlines()  # noqa: E731
    has_line = lambda: any(all(part in line for part in parts) for line in lines())  # noqa: E731
    wait_until(has_line, 60, f"a line has {parts}", lambda: logs_of(container))


def assert_told(ended, *parts):
    """Check that each worker's output contains every part."""
    for one in ended:
        for part in parts:
            assert part in one.err, one


def test_a_worker_that_starts_late_is_waited_for_and_named(peers):
    cluster = peers(2)
    begin = time.monotonic()
    command, token = ("python", "-c", ASK), {"CLUSTER_TOKEN": "a secret that they share"}
    first = cluster.start(0, *command, **token)
    is_late = lambda: time.monotonic() - begin > LATE_SECONDS  # noqa: E731
    wait_until(is_late, LATE_SECONDS + 1, "it is late", lambda: logs_of(first))
    ended = end_of([first, cluster.start(1, *command, **token)])
    assert [one.code for one in ended] == [0, 0], ended
    assert_told(ended, "2 workers are here and agree", "2 workers are a ring, generation")
    assert [one.out for one in ended] == ["ring 0 2 1\n", "ring 1 2 0\n"], ended
    waited = [line for line in ended[0].err.splitlines() if "waiting for 1 of 2 workers" in line]
    assert len(waited) >= 2
    named = f"worker-1 at {cluster.address(1)}: "
    assert all(named in line for line in waited)
    assert sum(f"{named}the name does not resolve" in line for line in waited) >= 1


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(1, id="a-worker"),
        pytest.param(0, id="the-chief", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_never_starts_is_named_at_the_bound(peers, missing):
    cluster = peers(2)
    ended = wait_for_end(cluster.start(1 - missing, *COMMAND, **BOUND))
    assert ended.code == 75, ended
    assert ended.seconds < BOUND_SECONDS + ENGINE_SECONDS
    last = ended.err.splitlines()[-1]
    assert f"worker-{missing} at {cluster.address(missing)}" in last
    assert "the name does not resolve" in last
    assert "started" not in ended.out


@pytest.mark.long  # also in test_reasons.py
def test_a_machine_without_a_worker_is_told_from_one_that_is_not_there(peers):
    cluster = peers(2)
    cluster.start(1, "300", entrypoint="sleep")
    ended = wait_for_end(cluster.start(0, *COMMAND, **BOUND))
    assert ended.code == 75, ended
    assert f"worker-1 at {cluster.address(1)}: refused" in ended.err.splitlines()[-1]


@pytest.mark.long  # also in test_one_machine.py, test_comparison.py
def test_two_workers_with_swapped_indices_are_told_so(peers):
    cluster = peers(3)
    # The chief starts last. Otherwise it might end because of one worker before it meets the other.
    started = [
        cluster.start(1, *COMMAND, **PATIENT, WORKER_INDEX="2"),
        cluster.start(2, *COMMAND, **PATIENT, WORKER_INDEX="1"),
        cluster.start(0, *COMMAND, **PATIENT),
    ]
    ended = end_of(started)
    assert [one.code for one in ended] == [78, 78, 78], ended
    # The chief names whichever of the two it met first.
    named = re.search(r"WORKER_INDEX of (worker-[12]) at (\S+): received", ended[-1].err)
    assert named
    assert named[2] == cluster.address(3 - int(named[1][-1]))
    assert_told(ended, f"it answers at worker-{3 - int(named[1][-1])}'s address {named[2]}")
    assert ended[-1].seconds < AT_ONCE_SECONDS  # the duration of the worker that started last


@pytest.mark.long
def test_a_wrong_index_is_told_on_the_machine_that_has_it(peers):
    cluster = peers(2)
    ended = wait_for_end(cluster.start(1, *COMMAND, **PATIENT, WORKER_INDEX="0"))
    assert ended.code == 78, ended
    assert f"because it answers at worker-1's address {cluster.address(1)}" in ended.err


@pytest.mark.long  # also in test_comparison.py
def test_another_image_version_is_named(peers):
    cluster = peers(2)
    started = [
        cluster.start(0, *COMMAND, **PATIENT),
        cluster.start(1, *COMMAND, **PATIENT, CLUSTER_TRAINER_VERSION="9.9.9"),
    ]
    ended = end_of(started)
    assert [one.code for one in ended] == [78, 78], ended
    assert_told(ended, "image version of worker-1", 'received "9.9.9 (')


@pytest.mark.long
def test_another_setting_of_the_trainer_is_named_with_both_values(peers):
    cluster = peers(2)
    options = PATIENT | {"tmpfs": {"/runs": "mode=1777"}}
    started = [
        cluster.start(0, "--epochs", "3", **options),
        cluster.start(1, **options, TRAINER_EPOCHS="5"),
    ]
    ended = end_of(started)
    assert [one.code for one in ended] == [78, 78], ended
    assert_told(ended, "TRAINER_EPOCHS of worker-1", 'received "5"; accepted: 3, as worker-0')


@pytest.mark.long  # also in test_token.py
def test_another_token_lets_nobody_in_and_is_named(peers):
    cluster = peers(2)
    started = [
        cluster.start(0, *COMMAND, **PATIENT, CLUSTER_TOKEN="one-longer-secret"),
        cluster.start(1, *COMMAND, **PATIENT, CLUSTER_TOKEN="another-longer-secret"),
    ]
    for index, container in enumerate(started):
        other = f"worker-{1 - index} at {cluster.address(1 - index)}"
        wait_for_line(container, "waiting for", other, "another CLUSTER_TOKEN, or none")
    for container in started:
        container.stop()
    ended = end_of(started)
    assert [one.code for one in ended] == [143, 143], ended
    assert not [one for one in ended if "secret" in one.err + one.out]


@pytest.mark.long  # also in tests/unit/entrypoint/rendezvous/meetings/test_processes.py
def test_a_frozen_worker_is_missing_with_the_reason(peers):
    cluster = peers(3)
    first = cluster.start(0, *COMMAND, **PATIENT)
    frozen = cluster.start(1, *COMMAND, **PATIENT)
    wait_for_text(frozen, "waiting for 1 of 3 workers")
    pause(frozen)
    silent = f"worker-1 at {cluster.address(1)}: checked in, but has been silent"
    wait_for_line(first, "waiting for 2 of 3 workers", silent, f"worker-2 at {cluster.address(2)}")
    frozen.unpause()


def drop_packets(container):
    """Put a firewall before the gate's port of a running container; skip the test without root."""
    container.reload()
    inside = ["nsenter", "-t", str(container.attrs["State"]["Pid"]), "-n", "iptables"]
    rule = ["-A", "INPUT", "-p", "tcp", "--dport", "2222", "-j", "DROP"]
    if not (shutil.which("nsenter") and shutil.which("iptables") and os.getuid() == 0):
        pytest.skip("needs root, nsenter and iptables")
    subprocess.run([*inside, *rule], check=True, timeout=10)


@pytest.mark.parametrize(
    "walled",
    [
        pytest.param(0, id="before-the-chief", marks=pytest.mark.long),
        pytest.param(1, id="before-a-worker"),
    ],
)
def test_a_firewall_that_drops_is_told_from_a_worker_that_is_not_there(peers, walled):
    cluster = peers(2)
    behind = cluster.start(walled, *COMMAND, **PATIENT)
    drop_packets(behind)
    other = wait_for_end(cluster.start(1 - walled, *COMMAND, **BOUND))
    assert other.code == 75, other
    last = other.err.splitlines()[-1]
    assert f"worker-{walled} at {cluster.address(walled)}" in last
    assert "no answer: a firewall drops it" in last
    behind.reload()
    assert behind.status == "running"


@pytest.mark.long  # also in tests/unit/entrypoint/checks/test_gpus.py
def test_too_few_gpus_are_refused_before_anything_is_waited_for(peers):
    ended = wait_for_end(peers(2).start(0, *COMMAND, GPUS_PER_WORKER="1"))
    assert ended.code == 78, ended
    assert "No GPU can be seen in this container. Is --gpus all missing" in ended.err
    assert "waiting" not in ended.err


@pytest.mark.long  # also in test_port.py
def test_a_port_that_is_taken_is_said_before_waiting(peers):
    cluster = peers(2)
    first = cluster.start(0, *COMMAND, **PATIENT)
    wait_for_text(first, "waiting for 1 of 2 workers")
    shared = {"network_mode": f"container:{first.id}", "network": None, "name": cluster.name(1)}
    second = cluster.bench.start(
        *COMMAND,
        **{name: value for name, value in shared.items() if value},
        environment={"WORKER_HOSTS": cluster.hosts, "WORKER_INDEX": "0"},
    )
    cluster.started.append(second)
    ended = wait_for_end(second)
    assert ended.code == 75, ended
    assert "port 2222 of worker-0 is taken" in ended.err.splitlines()[-1]
    assert "waiting" not in ended.err


@pytest.mark.long  # also in test_port.py
def test_an_address_of_another_machine_is_warned_of(peers):
    cluster = peers(2)
    hosts = f"192.0.2.1:2222,{cluster.address(1)}"
    ended = wait_for_end(cluster.start(0, *COMMAND, **BOUND, WORKER_HOSTS=hosts))
    assert "WARNING worker-0 worker-0's address 192.0.2.1 is not one of this machine's" in ended.err

"""After the gate, TensorFlow waits for its peers in any command. The entrypoint watches them."""

import pytest

from harness.ended import wait_for_end

# Worker 1 passes the gate. Depending on its argument, it reaches TensorFlow late, never or at once.
SCRIPT = """
import os, pathlib, sys, time
behaviour, crashed = sys.argv[1], pathlib.Path("/tmp/crashed")
if os.environ["WORKER_INDEX"] == "1":
    if behaviour == "crashes once" and not crashed.exists():
        crashed.touch()
        sys.exit(3)
    if behaviour == "never comes":
        time.sleep(300)
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("replicas in sync", strategy.num_replicas_in_sync)
"""


@pytest.fixture
def workers(peers, tmp_path):
    """Start both workers with the script."""
    (tmp_path / "task.py").write_text(SCRIPT)

    def start(behaviour, **settings):
        cluster = peers(2)
        command = ("python", "task.py", behaviour)
        volumes = [f"{tmp_path}:/workspace:ro"]
        return [cluster.start(index, *command, volumes=volumes, **settings) for index in range(2)]

    return start


# Docker's client configuration may give every container a proxy. Nothing answers at this one.
PROXY = "http://192.0.2.1:3128"


def test_a_peer_that_crashed_before_tensorflow_is_met_again_past_a_proxy(workers):
    started = workers("crashes once", http_proxy=PROXY, HTTP_PROXY=PROXY)
    first, second = (wait_for_end(worker, 90) for worker in started)
    assert (first.code, second.code) == (0, 0), (first, second)
    assert "worker-1 is at the gate again: its command has ended; a peer was lost" in first.err
    assert "meeting the peers again: restart 1 of 3" in first.err
    assert "the command ended with exit code 3; restart 1 of 3" in second.err
    assert first.out == second.out == "replicas in sync 2\n"


@pytest.mark.long  # tests/unit/entrypoint/rendezvous/test_peer_watch.py
def test_a_peer_that_never_comes_is_not_waited_for_longer_than_allowed(workers):
    first, _ = workers("never comes", STARTUP_TIMEOUT="4", MAX_RESTARTS="0")
    ended = wait_for_end(first, 60)
    assert ended.code == 75, ended
    assert "s (STARTUP_TIMEOUT) for its peers: worker-1 at " in ended.err.splitlines()[-1]
    assert "refused" in ended.err.splitlines()[-1]


@pytest.mark.long
def test_a_cluster_that_cannot_form_ends_on_every_worker(workers):
    started = workers("comes", grpc_proxy=PROXY, STARTUP_TIMEOUT="4", MAX_RESTARTS="0")
    for ended in [wait_for_end(worker, 60) for worker in started]:
        assert ended.code == 75, ended
        last = ended.err.splitlines()[-1]
        assert "has not joined TensorFlow's cluster" in last
        assert "grpc_proxy is set" in last

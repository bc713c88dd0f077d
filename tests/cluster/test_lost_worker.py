"""A worker that is stopped or killed while the cluster trains: its peers notice, and say so."""

import time

import pytest

from harness.compose import cluster_environ
from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_until

GRACE_SECONDS = 10
LOST_SECONDS = 15
# The others wait this long for a killed worker that nobody starts again.
WAITING_SECONDS = 8
LONG = {
    "TRAINER_EPOCHS": "1000",
    "TRAINER_THREADS": "1",
    "MAX_RESTARTS": "0",
    "RENDEZVOUS_TIMEOUT": str(WAITING_SECONDS),
}


def stop(worker):
    worker.stop(timeout=GRACE_SECONDS)


def kill(worker):
    worker.kill("SIGKILL")


@pytest.fixture
def trained_a_while(compose, workbench, tmp_path):
    """Start three workers, and wait until the chief has recorded the first epoch."""
    folders = {"RUNS_DIR": str(tmp_path), "DATA_DIR": str(tmp_path), "WORKSPACE_DIR": str(tmp_path)}
    project = compose(**cluster_environ(3), **folders, **LONG, RUN_NAME="local")
    project.up()
    workers = [
        workbench.client.containers.get(project.container_id(f"worker-{index}"))
        for index in range(3)
    ]
    metrics = tmp_path / "local/worker-0/metrics.jsonl"
    trained = lambda: metrics.exists() and metrics.stat().st_size  # noqa: E731
    wait_until(trained, 90, "the first epoch ends", lambda: logs_of(workers[0]))
    return workers


@pytest.mark.parametrize(
    ("end", "index", "code", "reason"),
    [
        (stop, 0, 143, "another worker was asked to stop"),
        pytest.param(stop, 2, 143, "another worker was asked to stop", marks=pytest.mark.long),
        pytest.param(kill, 1, 137, f"gave up after {WAITING_SECONDS} s", marks=pytest.mark.long),
    ],
    ids=["stopped-chief", "stopped-worker", "killed-worker"],
)
def test_a_worker_that_ends_early_ends_at_once_and_so_do_the_others_in_time(
    trained_a_while, end, index, code, reason
):
    seconds = LOST_SECONDS + (WAITING_SECONDS if end is kill else 0)
    lost = trained_a_while[index]
    begin = time.monotonic()
    end(lost)
    ended = wait_for_end(lost)
    assert time.monotonic() - begin < GRACE_SECONDS
    assert (ended.code, "Traceback" in ended.out + ended.err) == (code, False), ended
    for worker in trained_a_while:
        if worker is not lost:
            ended = wait_for_end(worker, seconds)
            assert ended.code == 75, ended
            assert reason in ended.out + ended.err
            assert "Traceback" not in ended.out + ended.err
    assert time.monotonic() - begin < GRACE_SECONDS + seconds

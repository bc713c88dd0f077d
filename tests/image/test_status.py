"""`status` in a container: called by hand, as the health check, and where nothing runs."""

import json
import re

import pytest

from harness.waiting import logs_of, wait_for_text, wait_until

READY = ("bash", "-c", "echo ready; exec sleep 300")
SCRIPT = """
import keras, numpy
model = keras.Sequential([keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.ones((4096, 64)), numpy.ones(4096), batch_size=8, epochs=100000, verbose=0)
"""
OPTIONS = {
    "as-it-is": {},
    "another-user": {"user": "12345:54321"},
    "root": {"user": "0:0"},
    "read-only": {"read_only": True, "cap_drop": ["ALL"]},
    "read-only-with-tmp": {"read_only": True, "tmpfs": {"/tmp": "size=16m,mode=1777"}},
}


@pytest.mark.parametrize(
    "name",
    [
        *("as-it-is", "another-user", "read-only"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("root", "read-only-with-tmp")),
    ],
)
def test_shows_what_runs(run_container, name):
    container = run_container(*READY, **OPTIONS[name])
    wait_for_text(container, "ready")
    code, shown = container.exec_run(["status", "--json"])
    status = json.loads(shown)
    assert (code, status["worker"], status["state"]) == (0, "worker-0", "running")
    assert (status["healthy"], status["restarts"]) == (True, 0)


def test_the_health_check_is_the_same_program_and_cheap(workbench, run_container):
    kind, *command = workbench.inspect_image().attrs["Config"]["Healthcheck"]["Test"]
    container = run_container(*READY)
    wait_for_text(container, "ready")

    def cpu_seconds(program):
        timed = f"for i in {{1..5}}; do time {program} >/dev/null; done"
        code, shown = container.exec_run(["bash", "-ec", f"TIMEFORMAT='%U %S'; {timed}"])
        assert code == 0, shown
        return min(sum(map(float, line.split())) for line in shown.splitlines())

    assert kind == "CMD"
    # 0.05 s and 0.15 s on an idle machine.
    assert cpu_seconds(" ".join(command)) < cpu_seconds("python -I -c 'import numpy'")


def test_a_worker_that_starts_again_says_why(run_container):
    # Each pause is twice as long as the last, so one of them is long enough for the test to see.
    container = run_container("bash", "-c", "exit 3", environment={"MAX_RESTARTS": "6"})
    seen = []

    def is_restarting():
        seen.append(container.exec_run(["status", "--json"]))
        return b'"state": "restarting"' in seen[-1].output

    wait_until(is_restarting, 60, "it starts again", lambda: logs_of(container))
    status = json.loads(seen[-1].output)
    assert (seen[-1].exit_code, status["restarts"] >= 1) == (0, True), status
    assert "the command ended with exit code 3" in status["detail"]


def test_is_refused_where_nothing_runs(run_to_end):
    ended = run_to_end("status")
    assert (ended.code, ended.out) == (1, "")
    assert "no worker runs" in ended.err
    assert "docker exec CONTAINER status" in ended.err


# Freezes all processes of the container, except the first and those that run this program.
FREEZE = """
import os, signal
mine = {1, os.getpid(), os.getppid()}
for pid in {int(name) for name in os.listdir("/proc") if name.isdigit()} - mine:
    os.kill(pid, signal.SIGSTOP)
"""


@pytest.mark.long
@pytest.mark.parametrize("command", [(), ("python", "-c", SCRIPT)], ids=["trainer", "script"])
def test_a_worker_that_is_frozen_while_it_trains_is_unhealthy(run_container, tmp_path, command):
    """Nothing inside can end it: the trainer's time limit and the entrypoint are frozen, too."""
    container = run_container(
        *command, environment={"TRAINER_EPOCHS": "100000"}, volumes=[f"{tmp_path}:/runs"]
    )

    def shown():
        return container.exec_run(["status", "--json"])

    def is_training():  # two epochs may pass between two looks
        return re.search(rb"epoch ([3-9]|\d\d+)/", shown().output)

    wait_until(is_training, 90, "it trains", lambda: logs_of(container))
    assert shown().exit_code == 0
    assert container.exec_run(["python", "-c", FREEZE]).exit_code == 0
    found = shown()
    assert found.exit_code == 1, found.output
    assert "SIGSTOP" in json.loads(found.output)["trouble"]

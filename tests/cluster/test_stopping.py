"""Ctrl-C, `kill` and failures: the whole cluster ends soon, and leaves nothing on the engine.

test_stop_and_resume.py presses Ctrl-C once, and resumes the run.
"""

import signal
import time

import pytest

GRACE_SECONDS = 10
# For the engine to stop and remove containers and the network, beyond the grace period.
ENGINE_SECONDS = 30
LONG = {"TRAINER_EPOCHS": 1000}
START_SECONDS = 90
END_SECONDS = 240
FIRST_EPOCH = "test accuracy"
# Exceeds the limit with pages that are really written: zeroed pages would cost nothing.
HUNGRY = """
services:
  worker-0: {mem_limit: 64m, memswap_limit: 64m, command: [python, -c, "b'x' * 10**9"]}
"""


@pytest.fixture
def training(start):
    cluster = start(WORKERS=2, GRACE_SECONDS=GRACE_SECONDS, **LONG)
    cluster.wait_for_text(FIRST_EPOCH, START_SECONDS)
    return cluster


def press_ctrl_c_twice(cluster):
    cluster.press_ctrl_c()
    cluster.wait_for_text("stopping", 30)
    cluster.press_ctrl_c()


def kill(cluster):
    cluster.tell(signal.SIGTERM)


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        pytest.param(press_ctrl_c_twice, 130, id="ctrl-c-twice"),
        # test_up_refuses.py also ends `up` by a signal, and test_stop_and_resume.py stops workers.
        pytest.param(kill, 143, id="kill", marks=pytest.mark.long),
    ],
)
def test_stops_all_within_the_grace_period_and_leaves_nothing(training, workbench, stop, code):
    begin = time.monotonic()
    stop(training)
    ended = training.end(60)
    assert time.monotonic() - begin < GRACE_SECONDS + ENGINE_SECONDS
    assert ended.code == code, ended.output
    assert workbench.leftovers() == []
    assert [result["status"] for result in ended.results()] == ["stopped", "stopped"]


# test_stop_and_resume.py kills containers without TensorFlow, test_chaos.py with it.
@pytest.mark.long
def test_a_killed_container_is_started_again_and_all_go_on(start, workbench):
    cluster = start(WORKERS=2, TRAINER_EPOCHS=60)
    cluster.wait_for_text(FIRST_EPOCH, START_SECONDS)
    (victim,) = (item for item in workbench.containers() if "worker-1" in item.name)
    victim.kill("SIGKILL")
    ended = cluster.end(END_SECONDS)
    assert ended.code == 0, ended.output
    assert "worker-1 was killed: starting its container again, 1 of 3" in ended.output
    assert "all 2 workers are here again" in ended.output
    assert [result["status"] for result in ended.results()] == ["done", "done"]


@pytest.mark.long
def test_memory_that_runs_out_is_called_by_its_name(start, tmp_path):
    overlay = tmp_path / "small.yaml"
    overlay.write_text(HUNGRY)
    ended = start(WORKERS=1, OVERLAYS=overlay, MAX_RESTARTS=0).end(START_SECONDS)
    assert ended.code == 137, ended.output
    assert "(out of memory)" in ended.output

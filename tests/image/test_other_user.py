"""A command that has become another user, whose processes the entrypoint may not signal."""

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

# Root without CAP_KILL stands in for a user whose command a setuid program runs as another user.
NOT_MAY_KILL = {"user": "0:0", "cap_drop": ["KILL"]}
BECOMES_ANOTHER = "import os, time; os.setuid(1000); print('ready', flush=True)\n"
GO = "/tmp/go"
REFUSED = "WARNING worker-0 the command runs as another user: it cannot be sent SIGUSR1"


@pytest.fixture
def another(run_container):
    """Start a program as another user."""

    def start(program, **environment):
        command = ("python", "-c", BECOMES_ANOTHER + program)
        container = run_container(*command, environment=environment, **NOT_MAY_KILL)
        wait_for_text(container, "ready")
        return container

    return start


def test_a_signal_that_may_not_be_sent_is_said_once_and_harms_nothing(another):
    container = another(f"while not os.path.exists({GO!r}): time.sleep(0.1)\nprint('works')")
    container.kill("SIGUSR1")
    container.kill("SIGUSR2")
    wait_for_text(container, "cannot be sent")
    container.exec_run(["touch", GO])
    ended = wait_for_end(container)
    assert (ended.code, ended.out) == (0, "ready\nworks\n")
    assert ended.err.count("cannot be sent") == 1
    assert REFUSED in ended.err
    assert "Traceback" not in ended.err


def test_a_stop_ends_the_container_when_the_grace_is_over(another):
    container = another("time.sleep(300)", STOP_GRACE_SECONDS="1")
    container.stop(timeout=30)
    ended = wait_for_end(container)
    assert ended.code == 143
    assert ended.seconds < 20
    assert "Traceback" not in ended.err

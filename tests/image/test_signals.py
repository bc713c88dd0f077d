import time

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

# A command that did not get the signal would end only after this grace period.
GRACE = {"STOP_GRACE_SECONDS": "25"}
PROMPT_SECONDS = 15


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["sh", "-c", "echo ready; sleep 300; echo end"], id="child-of-a-shell"),
        pytest.param(["python", "-c", "import time; print('ready'); time.sleep(300)"], id="python"),
    ],
)
def test_docker_stop_ends_a_command_at_once(run_container, command):
    container = run_container(*command, environment=GRACE)
    wait_for_text(container, "ready")
    begin = time.monotonic()
    container.stop(timeout=30)
    assert time.monotonic() - begin < PROMPT_SECONDS
    assert wait_for_end(container).code == 143


def test_a_command_may_handle_sigterm_itself_and_was_asked_to_stop(run_container):
    handler = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    container = run_container("bash", "-c", handler)
    wait_for_text(container, "ready")
    container.stop(timeout=30)
    ended = wait_for_end(container)
    assert (ended.code, "saved" in ended.out) == (143, True)
    assert "ended with exit code 7" in ended.err


def test_sigint_reaches_the_command(run_container):
    container = run_container("python", "-c", "import time; print('ready'); time.sleep(300)")
    wait_for_text(container, "ready")
    container.kill("SIGINT")
    ended = wait_for_end(container)
    assert "KeyboardInterrupt" in ended.err
    assert ended.code == 130

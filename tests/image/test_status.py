"""`status` in a container: by hand, as the image's health check, and where nothing runs."""

import json

import pytest

from harness.waiting import wait_for_text

READY = ("bash", "-c", "echo ready; exec sleep 300")
OPTIONS = {
    "as-it-is": {},
    "another-user": {"user": "12345:54321"},
    "root": {"user": "0:0"},
    "read-only": {"read_only": True, "cap_drop": ["ALL"]},
    "read-only-with-tmp": {"read_only": True, "tmpfs": {"/tmp": "size=16m,mode=1777"}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_shows_what_runs(run_container, options):
    container = run_container(*READY, **options)
    wait_for_text(container, "ready")
    code, shown = container.exec_run(["status", "--json"])
    status = json.loads(shown)
    assert (code, status["worker"], status["state"]) == (0, "worker-0", "running")
    assert (status["healthy"], status["restarts"]) == (True, 0)


def test_the_health_check_is_the_same_program_and_cheap(workbench, run_container):
    kind, *command = workbench.inspect_image().attrs["Config"]["Healthcheck"]["Test"]
    container = run_container(*READY)
    wait_for_text(container, "ready")
    timed = f"TIMEFORMAT='%U %S'; time {' '.join(command)} >/dev/null"
    code, shown = container.exec_run(["bash", "-c", timed])
    assert (kind, code) == ("CMD", 0), shown
    assert sum(map(float, shown.split())) < 0.2  # 0.05 s on a machine that nobody else uses


def test_a_worker_that_starts_again_says_why(run_container):
    container = run_container("bash", "-c", "exit 3", environment={"MAX_RESTARTS": "1"})
    wait_for_text(container, "restart 1 of 1")
    code, shown = container.exec_run(["status", "--json"])
    status = json.loads(shown)
    assert (code, status["state"], status["restarts"]) == (0, "restarting", 1)
    assert "the command ended with exit code 3" in status["detail"]


def test_is_refused_where_nothing_runs(run_to_end):
    ended = run_to_end("status")
    assert (ended.code, ended.out) == (1, "")
    assert "no worker runs here" in ended.err
    assert "docker exec CONTAINER status" in ended.err

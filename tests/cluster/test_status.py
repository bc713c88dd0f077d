"""`make status`: the state and step of each worker, and the peers that it waits for."""

import json
import re

from harness.cluster import STATUS, STOP
from harness.waiting import wait_until

# Far more epochs than the workers train before the test is over.
RUN = {"WORKERS": 2, "TRAINER_EPOCHS": 5000, "TRAINER_STEPS_PER_EPOCH": 20}
START_SECONDS = 90
QUICK_SECONDS = 30


def test_status_shows_each_worker(start, workbench):
    cluster = start(**RUN)
    cluster.wait_for_text("test accuracy", START_SECONDS)
    training = [one for one in asked(cluster) if one["state"] == "training"]
    assert [one["worker"] for one in training] == ["worker-0", "worker-1"]
    for one in training:
        assert one["step"] > 0
        assert one["epochs"] == 5000
        assert (one["healthy"], one["restarts"]) == (True, 0)
        assert re.fullmatch(r"[0-9.]+[MG]iB", one["memory"])
        assert one["cpu_percent"] > 0
        own = own_word(workbench, one["container"])
        assert (own["gate_waits"], own["slow"]) == (1, False)
        assert 0 < own["checkpoint_step"] <= own["step"]
        assert 0 <= own["checkpoint_seconds"] < START_SECONDS

    assert cluster.ask(STOP, "1").returncode == 0
    cluster.wait_for_text("waiting for 1 of 2 workers", QUICK_SECONDS)
    first, second = asked(cluster)
    assert (first["state"], first["healthy"]) == ("waiting", True), first
    assert "worker-1 at worker-1:2222: " in first["detail"]
    assert first["restarts"] == 1
    assert first["step"] >= training[0]["step"]
    assert (second["state"], second["exit_code"]) == ("stopped", 143)
    table = cluster.ask(STATUS).stdout.splitlines()
    assert table[0].split()[:3] == ["worker", "state", "step"]
    assert table[1].split()[:2] == ["worker-0", "waiting"]
    assert table[2].split()[:3] == ["worker-1", "stopped", "(143)"]


def own_word(workbench, container):
    """Return a worker's own status, once it reports a checkpoint."""
    said = []

    def has_saved():
        output = workbench.client.containers.get(container).exec_run(["status", "--json"]).output
        said.append(json.loads(output))
        return bool(said[-1]["checkpoint_step"])  # the first one is of step 0

    wait_until(has_saved, QUICK_SECONDS, "it tells of a checkpoint", lambda: str(said[-1]))
    return said[-1]


def asked(cluster):
    done = cluster.ask(STATUS, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

"""A cloud announces the end of a machine: it saves and leaves, and the others continue."""

import re
from pathlib import Path

import pytest

from harness import metadata_servers
from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_for_text

# Unit tests stop a command by each cloud's notice. test_lost_worker.py stops workers by SIGTERM.
pytestmark = pytest.mark.long

SERVER = Path(metadata_servers.__file__)
PORT = "8080"
NOTICE = "/tmp/notice"
TRAINING = {"TRAINER_EPOCHS": "40", "TRAINER_THREADS": "1", "MIN_WORKERS": "2"}
FIRST_EPOCH = "epoch  1/40  step"
RUN_SECONDS = 240


@pytest.fixture
def metadata(peers, workbench):
    """The network of three workers, and the container of AWS's metadata server in it."""
    cluster = peers(3)
    server = workbench.start(
        *("python", "/server.py", "aws", PORT, NOTICE),
        entrypoint="",
        network=cluster.network,
        volumes=[f"{SERVER}:/server.py:ro"],
    )
    cluster.started.append(server)
    return cluster, server


def test_the_machine_saves_and_leaves_and_the_others_continue_from_the_same_step(metadata):
    cluster, server = metadata
    preempted = {"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": f"http://{server.name}:{PORT}"}
    options = [TRAINING, TRAINING, TRAINING | preempted]
    workers = [
        cluster.start(index, tmpfs={"/runs": "mode=1777"}, **variables)
        for index, variables in enumerate(options)
    ]
    wait_for_text(workers[0], FIRST_EPOCH, RUN_SECONDS)
    assert server.exec_run(["touch", NOTICE]).exit_code == 0
    left = wait_for_end(workers[2])
    assert left.code == 143, left.err
    assert "AWS will terminate this machine at" in left.err
    others = [wait_for_end(worker, RUN_SECONDS) for worker in workers[:2]]
    assert [one.code for one in others] == [0, 0], others
    said = logs_of(workers[0])
    assert "they continue without worker-2 (MIN_WORKERS)" in said
    (saved,) = re.findall(r"saved the checkpoint of step (\d+)", logs_of(workers[2]))
    assert f"resuming from step {saved} held by" in said

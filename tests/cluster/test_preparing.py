"""Workers that find no prepared data set: one prepares it, even if another was killed meanwhile."""

import re

import pytest

from harness.ended import run_and_remove, wait_for_end
from harness.flower_downloads import PICTURES, PROGRAM
from harness.peers import running_workers
from harness.waiting import wait_for_text

RUN_SECONDS = 150
# Freezes as soon as TFDS begins to write. Only a loop in the container sees that in time.
STOPS_HALF_WAY = """
python -m trainer prepare tf_flowers &
while kill -0 $! && ! compgen -G '/data/tf_flowers/incomplete.*'; do sleep 0.01; done
kill -STOP $! && echo stands still
wait
"""
WAITING = "waiting for another container that prepares tf_flowers in /data"
SETTINGS = {
    "TRAINER_DATASET": "tf_flowers",
    "TRAINER_IMAGE_SIZE": "8",
    "TRAINER_EPOCHS": "1",
    "TRAINER_RUN_DIR": "/tmp",
}


@pytest.fixture(scope="module")
def data(workbench, tmp_path_factory):
    """A data directory with the files that TFDS would download, and nothing prepared."""
    folder = tmp_path_factory.mktemp("data")
    ended = run_and_remove(workbench, "python", "-c", PROGRAM, volumes=[f"{folder}:/prepared"])
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="module")
def preparing(workbench, data):
    """A container that is frozen half-way through a preparation, and holds the lock."""
    container = workbench.start("bash", "-c", STOPS_HALF_WAY, volumes=[f"{data}:/data"])
    try:
        wait_for_text(container, "stands still", RUN_SECONDS)
        yield container
    finally:
        container.remove(force=True)


@pytest.fixture(scope="module")
def half_way(data, preparing):
    """Return the paths of the set at that moment."""
    assert preparing
    return list(data.glob("tf_flowers/*"))


@pytest.fixture(scope="module")
def trained(workbench, data, half_way, preparing):
    """Start two workers that wait for the preparation, kill it, and return the workers' ends."""
    assert half_way
    with running_workers(workbench, environment=SETTINGS, volumes=[f"{data}:/data"]) as workers:
        for worker in workers:
            wait_for_text(worker, WAITING)
        preparing.kill()
        return [wait_for_end(worker, RUN_SECONDS) for worker in workers]


@pytest.mark.long
def test_half_a_preparation_does_not_pass_for_a_prepared_set(half_way):
    assert [folder.name.partition(".")[0] for folder in half_way] == ["incomplete"]


@pytest.mark.long
def test_one_of_those_that_wait_prepares_and_both_train(trained):
    assert [worker.code for worker in trained] == [0, 0], trained
    outputs = [worker.out for worker in trained]
    assert sorted("preparing tf_flowers in /data" in out for out in outputs) == [False, True]
    for out in outputs:
        assert f"{PICTURES * 9 // 10} examples to train on, {PICTURES // 10} to test" in out


@pytest.mark.long
def test_what_the_killed_one_left_is_removed(trained, data):
    assert re.search(r"removing /data/tf_flowers/incomplete\.\S+", trained[0].out + trained[1].out)
    assert [folder.name for folder in data.glob("tf_flowers/*")] == ["3.0.1"]


@pytest.mark.long
def test_it_is_prepared_once(workbench, trained, data):
    assert trained
    again = run_and_remove(
        workbench, "python", "-m", "trainer", "prepare", "tf_flowers", volumes=[f"{data}:/data"]
    )
    assert again.code == 0, again.err
    assert "preparing" not in again.out
    assert f"train: {PICTURES:,}" in again.out

"""A user's script that calls `fit`, as `docker run … python task.py` runs it."""

import json
from pathlib import Path

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

EXAMPLE = Path(__file__).parents[2] / "examples/own-script"
WORKSPACE = Path(__file__).parent / "workspace"
SETTINGS = {"TRAINER_EPOCHS": "20", "TRAINER_THREADS": "1", "TRAINER_STEPS_PER_CALL": "2"}
RUN_SECONDS = 120


@pytest.fixture
def start(peers, tmp_path):
    """Start the script's workers, each of which writes below a folder of the test."""

    def run(workers):
        cluster = peers(workers)
        folder = tmp_path / f"{cluster.network}"
        folder.mkdir()
        volumes = [f"{EXAMPLE}:/workspace:ro", f"{folder}:/runs"]
        options = SETTINGS | {"volumes": volumes}
        return folder, [
            cluster.start(index, "python", "task.py", **options) for index in range(workers)
        ]

    return run


def results(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.glob("worker-*/result.json"))]


@pytest.fixture
def finish(start):
    """Run the script to its end and return each worker's result."""

    def run(workers):
        folder, containers = start(workers)
        ended = [wait_for_end(container, RUN_SECONDS) for container in containers]
        assert [one.code for one in ended] == [0] * workers, ended
        assert "test accuracy 1.000 after 600 steps" in ended[0].out
        assert (folder / "worker-0/model.keras").is_file()
        return results(folder)

    return run


def test_two_workers_train_as_one_does(finish):
    (alone,), two = finish(1), finish(2)
    assert {one["weights_sha256"] for one in two} == {two[0]["weights_sha256"]}
    assert two[0]["metrics"]["test_examples"] == 200
    assert two[0]["metrics"]["loss"] == pytest.approx(alone["metrics"]["loss"], rel=1e-3)


def test_a_script_that_was_stopped_goes_on_with_the_very_next_batch(start, finish):
    undisturbed = finish(2)
    folder, (first, second) = start(2)
    wait_for_text(first, "epoch  3/20", RUN_SECONDS)
    first.stop(timeout=10)
    assert wait_for_end(first).code == 143
    wait_for_text(second, "meeting the peers again", RUN_SECONDS)
    stopped, _ = results(folder)
    assert stopped["status"] == "stopped"
    first.start()
    ended = [wait_for_end(container, RUN_SECONDS) for container in (first, second)]
    assert [one.code for one in ended] == [0, 0], ended
    assert [one["resumed_from_step"] for one in results(folder)] == [stopped["steps"]] * 2
    assert results(folder)[0]["weights_sha256"] == undisturbed[0]["weights_sha256"]


def test_workers_that_were_given_different_things_say_which(peers):
    cluster = peers(2)
    options = {"TRAINER_RUN_DIR": "/tmp/runs", "volumes": [f"{WORKSPACE}:/workspace:ro"]}
    containers = [cluster.start(index, "python", "differing.py", **options) for index in (0, 1)]
    for container, epochs in zip(containers, (5, 6), strict=True):
        ended = wait_for_end(container, RUN_SECONDS)
        assert ended.code == 78, ended
        assert "2 problems in the configuration" in ended.err
        epochs_differ = f'TRAINER_EPOCHS: received "{epochs}"; accepted: the same on all workers.'
        assert f"{epochs_differ} worker-0 has 5, worker-1 has 6." in ended.err
        assert "SHA-256 of the training labels: received" in ended.err
        assert "Every worker loads all examples in the same order" in ended.err

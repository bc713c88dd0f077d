"""A user's script that calls `fit`, as `docker run … python task.py` runs it."""

import json
from functools import cache
from pathlib import Path

import pytest

from harness.ended import wait_for_end
from harness.peers import make_peers
from harness.waiting import wait_for_text

EXAMPLE = Path(__file__).parents[2] / "examples/own-script"
WORKSPACE = Path(__file__).parent / "workspace"
SETTINGS = {"TRAINER_EPOCHS": "20", "TRAINER_THREADS": "1", "TRAINER_STEPS_PER_CALL": "2"}
RUN_SECONDS = 120


def start(cluster, folder):
    """Start the script on all workers, each of which writes below the folder."""
    volumes = [f"{EXAMPLE}:/workspace:ro", f"{folder}:/runs"]
    options = SETTINGS | {"volumes": volumes}
    return [cluster.start(index, "python", "task.py", **options) for index in range(cluster.count)]


def results(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.glob("worker-*/result.json"))]


@pytest.fixture(scope="module")
def undisturbed(workbench, tmp_path_factory):
    """Run the script to its end, once per number of workers; return each worker's result."""

    def run(workers):
        folder = tmp_path_factory.mktemp("undisturbed")
        with make_peers(workbench, workers) as cluster:
            ended = [wait_for_end(container, RUN_SECONDS) for container in start(cluster, folder)]
        assert [one.code for one in ended] == [0] * workers, ended
        assert "test accuracy 1.000 after 600 steps" in ended[0].out
        assert (folder / "worker-0/model.keras").is_file()
        return results(folder)

    return cache(run)


def test_two_workers_train_as_one_does(undisturbed):
    (alone,), two = undisturbed(1), undisturbed(2)
    assert {one["weights_sha256"] for one in two} == {two[0]["weights_sha256"]}
    assert two[0]["metrics"]["test_examples"] == 200
    assert two[0]["metrics"]["loss"] == pytest.approx(alone["metrics"]["loss"], rel=1e-3)


@pytest.mark.long
def test_a_script_that_was_stopped_goes_on_with_the_very_next_batch(peers, tmp_path, undisturbed):
    first, second = start(peers(2), tmp_path)
    wait_for_text(first, "epoch  3/20", RUN_SECONDS)
    first.stop(timeout=10)
    assert wait_for_end(first).code == 143
    wait_for_text(second, "meeting the peers again", RUN_SECONDS)
    stopped, _ = results(tmp_path)
    assert stopped["status"] == "stopped"
    first.start()
    ended = [wait_for_end(container, RUN_SECONDS) for container in (first, second)]
    assert [one.code for one in ended] == [0, 0], ended
    assert [one["resumed_from_step"] for one in results(tmp_path)] == [stopped["steps"]] * 2
    assert results(tmp_path)[0]["weights_sha256"] == undisturbed(2)[0]["weights_sha256"]


@pytest.mark.long  # tests/inside/test_unlike_data.py
@pytest.mark.parametrize("way", ["ring", "tensorflow"])
def test_workers_that_were_given_different_things_say_which(peers, way):
    cluster = peers(2)
    options = {"TRAINER_RUN_DIR": "/tmp/runs", "volumes": [f"{WORKSPACE}:/workspace:ro"]}
    options["TRAINER_COLLECTIVES"] = way
    containers = [cluster.start(index, "python", "differing.py", **options) for index in (0, 1)]
    for container, epochs in zip(containers, (5, 6), strict=True):
        ended = wait_for_end(container, RUN_SECONDS)
        assert ended.code == 78, ended
        assert "3 problems in the configuration" in ended.err
        epochs_differ = f'TRAINER_EPOCHS: received "{epochs}"; accepted: the same on all workers.'
        assert f"{epochs_differ} worker-0 has 5, worker-1 has 6." in ended.err
        assert "SHA-256 of the training labels: received" in ended.err
        assert "the optimizer: received" in ended.err
        assert "Every worker loads all examples in the same order" in ended.err

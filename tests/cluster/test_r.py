"""examples/r/train.R and its twin in Python end with the same loss, on one worker and on two."""

import json
from pathlib import Path

import pytest

from harness.ended import run_and_remove, wait_for_end
from harness.peers import running_workers
from harness.small_mnist import program

EXAMPLE = Path(__file__).parents[2] / "examples/r"
# One file for two workers, as TFDS writes MNIST by itself.
SMALL_MNIST = program(train_examples=2048, shards=1)
# Larger than the tutorial's 0.001, so that other first weights or another order end far apart.
SETTINGS = ["steps=8", "learning_rate=0.02"]
LANGUAGES = {"R": ["Rscript", "train.R"], "Python": ["python", "train.py"]}
RUN_SECONDS = 120


@pytest.fixture(scope="module")
def options(workbench, image_with_r, tmp_path_factory):
    """Prepare a small MNIST for /data; return the options of all containers."""
    data = tmp_path_factory.mktemp("data")
    run = run_and_remove(workbench, "python", "-c", SMALL_MNIST, volumes=[f"{data}:/prepared"])
    assert run.code == 0, run
    return {
        "image": image_with_r,
        "volumes": [f"{EXAMPLE}:/workspace:ro", f"{data}:/data:ro"],
        "read_only": True,
        "tmpfs": {"/tmp": "mode=1777"},
        # Two workers share the machine. More threads would only compete for its cores.
        "environment": {"TF_NUM_INTRAOP_THREADS": "1", "MAX_RESTARTS": "0"},
    }


def on_one(workbench, command, options):
    return [run_and_remove(workbench, *command, timeout_seconds=RUN_SECONDS, **options)]


def on_two(workbench, command, options):
    with running_workers(workbench, *command, **options) as workers:
        return [wait_for_end(worker, RUN_SECONDS) for worker in workers]


@pytest.mark.long  # tests/image/test_r.py runs TensorFlow in R
@pytest.mark.parametrize(
    ("run", "workers", "dataset"),
    [
        pytest.param(on_one, 1, "digits", id="one worker"),
        pytest.param(on_two, 2, "mnist", id="two workers"),
    ],
)
def test_r_and_python_end_with_the_same_loss(workbench, options, run, workers, dataset):
    losses = {}
    for language, command in LANGUAGES.items():
        ended = run(workbench, [*command, f"dataset={dataset}", *SETTINGS], options)
        assert [worker.code for worker in ended] == [0] * workers, ended
        results = [json.loads(worker.out.rpartition("result:")[2]) for worker in ended]
        assert [result["replicas"] for result in results] == [workers] * workers
        losses[language] = [result["loss"] for result in results]
    assert losses["R"] == pytest.approx(losses["Python"], abs=1e-3)
    # It has learned: 2.3 is the loss of guessing.
    assert losses["R"][0] < 2.27

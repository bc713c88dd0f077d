"""The same training on one, two and four workers: 100 steps over the same global batches."""

import json

import pytest

from harness.ended import run_and_remove

GLOBAL_BATCH = 128
SIZES = (1, 2, 4)
COMPARE = """
import json, sys
import keras, numpy as np
first, *others = [keras.models.load_model(path).get_weights() for path in sys.argv[1:]]
flat = lambda weights: np.concatenate([array.ravel() for array in weights]).astype(np.float64)
distance = lambda other: np.linalg.norm(flat(other) - flat(first)) / np.linalg.norm(flat(first))
print(json.dumps([distance(other) for other in others]))
"""


@pytest.fixture(scope="module")
def hundred_steps(run):
    def of(workers):
        ended = run(
            WORKERS=workers,
            TRAINER_PER_REPLICA_BATCH_SIZE=GLOBAL_BATCH // workers,
            TRAINER_STEPS_PER_EPOCH=100,
            TRAINER_EPOCHS=1,
            TRAINER_SEED=7,
            # Rounding differs with the number of workers, and now and then it tips a max-pooling
            # or a ReLU over: one jump in proportion to the learning rate. The tutorials' small
            # steps keep rounding small, and a wrong mean or order is still 100 times the limit.
            TRAINER_OPTIMIZER="sgd",
            TRAINER_LEARNING_RATE=0.01,
        )
        return ended.raise_unless_done()

    return of


@pytest.mark.parametrize("workers", SIZES)
def test_every_worker_says_that_it_is_done(hundred_steps, workers):
    results = hundred_steps(workers).results()
    assert [result["status"] for result in results] == ["done"] * workers
    assert [result["task"]["index"] for result in results] == list(range(workers))
    assert {result["steps"] for result in results} == {100}


@pytest.mark.parametrize("workers", SIZES)
def test_all_workers_end_with_identical_weights(hundred_steps, workers):
    digests = {result["weights_sha256"] for result in hundred_steps(workers).results()}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


@pytest.mark.parametrize("workers", SIZES)
def test_only_the_chief_writes_the_model(hundred_steps, workers):
    chief, *others = hundred_steps(workers).workers
    assert (chief / "model.keras").is_file()
    assert (chief / "saved_model/saved_model.pb").is_file()
    assert not [other for other in others if list(other.glob("*model*"))]


def test_weights_do_not_depend_on_the_number_of_workers(hundred_steps, workbench):
    volumes = [f"{hundred_steps(size).folder}:/of/{size}:ro" for size in SIZES]
    models = [f"/of/{size}/worker-0/model.keras" for size in SIZES]
    ended = run_and_remove(workbench, "python", "-c", COMPARE, *models, volumes=volumes)
    assert ended.code == 0, ended.err
    distances = json.loads(ended.out.splitlines()[-1])
    assert len(distances) == 2
    assert max(distances) < 1e-4

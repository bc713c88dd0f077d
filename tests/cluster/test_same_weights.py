"""The same training on devices and workers of every kind: 100 steps over the same global batches.

Each case is (workers, CPU devices of each); 0 devices is the CPU as it is, without a strategy for
one worker.
"""

import json

import pytest

from harness.ended import run_and_remove

GLOBAL_BATCH = 128
ONE_DEVICE = (1, 0)
SEVERAL_WORKERS = [(2, 0), (4, 0)]
MIRRORED = [(1, 1), (1, 2), (1, 4)]
BOTH = [(2, 2)]
ALL = [ONE_DEVICE, *SEVERAL_WORKERS, *MIRRORED, *BOTH]
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
    def of(workers, devices):
        on_devices = {"TRAINER_LOGICAL_CPUS": devices} if devices else {}
        if devices and workers == 1:
            on_devices["TRAINER_STRATEGY"] = "mirrored"
        ended = run(
            **on_devices,
            WORKERS=workers,
            TRAINER_PER_REPLICA_BATCH_SIZE=GLOBAL_BATCH // workers // (devices or 1),
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


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_worker_says_that_it_is_done(hundred_steps, case):
    workers = case[0]
    results = hundred_steps(*case).results()
    assert [result["status"] for result in results] == ["done"] * workers
    assert [result["task"]["index"] for result in results] == list(range(workers))
    assert {result["steps"] for result in results} == {100}


@pytest.mark.parametrize("case", MIRRORED + BOTH, ids=str)
def test_every_device_holds_a_replica(hundred_steps, case):
    workers, devices = case
    strategy = "mirrored" if workers == 1 else "multiworker"
    named = ",".join(f"CPU:{number}" for number in range(devices))
    said = f"up: strategy {strategy} on {named}, replicas in sync {workers * devices},"
    assert hundred_steps(*case).output.count(said) == workers


@pytest.mark.parametrize("case", ALL, ids=str)
def test_all_workers_end_with_identical_weights(hundred_steps, case):
    digests = {result["weights_sha256"] for result in hundred_steps(*case).results()}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


@pytest.mark.parametrize("case", ALL, ids=str)
def test_only_the_chief_writes_the_model(hundred_steps, case):
    chief, *others = hundred_steps(*case).workers
    assert (chief / "model.keras").is_file()
    assert (chief / "saved_model/saved_model.pb").is_file()
    assert not [other for other in others if list(other.glob("*model*"))]


def test_weights_do_not_depend_on_devices_or_workers(hundred_steps, workbench):
    folders = [hundred_steps(*case).folder for case in ALL]
    volumes = [f"{folder}:/of/{place}:ro" for place, folder in enumerate(folders)]
    models = [f"/of/{place}/worker-0/model.keras" for place in range(len(ALL))]
    ended = run_and_remove(workbench, "python", "-c", COMPARE, *models, volumes=volumes)
    assert ended.code == 0, ended.err
    distances = dict(zip(ALL[1:], json.loads(ended.out.splitlines()[-1]), strict=True))
    assert {case: distance for case, distance in distances.items() if distance >= 1e-4} == {}


@pytest.mark.parametrize("case", MIRRORED + BOTH, ids=str)
def test_every_test_example_counts_once(hundred_steps, case):
    assert hundred_steps(*case).metrics()[-1]["test_examples"] == 360

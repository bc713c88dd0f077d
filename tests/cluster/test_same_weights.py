"""Training and evaluation end the same on every combination of devices and workers.

100 steps over the same global batches end with the same weights. The metrics of a run's test
set are those that plain Keras computes with the saved model.

Each case is (workers, devices), and devices is:

- a number: this many CPU devices, with a strategy
- 0: the plain CPU; one worker has no strategy, several use the default collectives
- "ring" or "tensorflow": the plain CPU, with these collectives
"""

import json
from functools import cache

import pytest

from harness.ended import run_and_remove
from harness.loopback import Case, run_cases

ONE_DEVICE = (1, 0)
# A cluster of containers. The other cases are processes in one container.
IN_CONTAINERS = (2, 0)
MIRRORED = (1, 2)
BOTH = (2, 2)
# The others are compared with the first case of their group.
QUICK = (ONE_DEVICE, IN_CONTAINERS, BOTH)
OF_TENSORFLOW = tuple((workers, "tensorflow") for workers in (2, 3, 4))
LONG = (ONE_DEVICE, MIRRORED, (3, "ring"), (4, 0), *OF_TENSORFLOW)
long = pytest.mark.long
SEVERAL = [*QUICK[1:], *(pytest.param(case, marks=long) for case in LONG[1:])]
cases = pytest.mark.parametrize("case", [ONE_DEVICE, *SEVERAL], ids=str)
# Setting -> its name in the log, its name in result.json.
STRATEGIES = {
    0: ("ring", "ring"),
    "ring": ("ring", "ring"),
    "tensorflow": ("multiworker", "CollectiveAllReduceStrategy"),
}
# Divides evenly in all cases. The last batch of the test set does not.
GLOBAL_BATCH = 132
DIGITS_TEST_EXAMPLES = 360
COMPARE = """
import json, sys
import keras, numpy as np, tensorflow_datasets as tfds

builder = tfds.builder_from_directory("/opt/cluster-trainer/data/digits/1.0.0")
(test,) = tfds.as_numpy([builder.as_dataset(split="test", batch_size=-1)])
models = [keras.models.load_model(path) for path in sys.argv[1:]]
flat = [np.concatenate([a.ravel() for a in m.get_weights()]).astype(np.float64) for m in models]
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def describe(model, weights):
    logits = model.predict(test["image"] / np.float32(255), batch_size=360, verbose=0)
    return {
        "distance": np.linalg.norm(weights - flat[0]) / np.linalg.norm(flat[0]),
        "correct": int(np.sum(np.argmax(logits, axis=1) == test["label"])),
        "loss": float(loss_of(test["label"], logits)),
    }

print(json.dumps([describe(*pair) for pair in zip(models, flat)]))
"""


def settings_of(workers, devices):
    on_devices = {"TRAINER_LOGICAL_CPUS": f"{devices}"} if devices else {}
    if devices in ("ring", "tensorflow"):
        on_devices = {"TRAINER_COLLECTIVES": devices}
    if devices and workers == 1:
        on_devices["TRAINER_STRATEGY"] = "mirrored"
    return {
        "TRAINER_GLOBAL_BATCH_SIZE": f"{GLOBAL_BATCH}",
        "TRAINER_STEPS_PER_EPOCH": "100",
        "TRAINER_EPOCHS": "1",
        "TRAINER_SEED": "7",
        # Rounding differs with the number of workers. Sometimes it flips a max-pooling or a
        # ReLU, a jump in proportion to the learning rate. The tutorials' small rate keeps this
        # small, and a wrong mean or order still exceeds the limit 100 times.
        "TRAINER_OPTIMIZER": "sgd",
        "TRAINER_LEARNING_RATE": "0.01",
    } | on_devices


def group_of(case):
    return QUICK if case in QUICK else LONG


@pytest.fixture(scope="module")
def runs_of(run, workbench, tmp_path_factory):
    """The runs of a group, by case."""

    @cache
    def ended(group):
        here = [case for case in group if case != IN_CONTAINERS]
        started = [Case(str(case), case[0], settings_of(*case)) for case in here]
        done = run_cases(workbench, tmp_path_factory.mktemp("cases"), started)
        found = {case: done[str(case)] for case in here}
        if IN_CONTAINERS in group:
            found[IN_CONTAINERS] = run(WORKERS=IN_CONTAINERS[0], **settings_of(*IN_CONTAINERS))
        return {case: one.raise_unless_done() for case, one in found.items()}

    return ended


@pytest.fixture
def trained(runs_of, case):
    return runs_of(group_of(case))[case]


@pytest.fixture(scope="module")
def models_of(runs_of, workbench):
    """Plain Keras's results for a group's models. Distances are to the first model's weights."""

    @cache
    def described(group):
        runs = runs_of(group)
        volumes = [f"{runs[case].folder}:/of/{place}:ro" for place, case in enumerate(group)]
        paths = [f"/of/{place}/worker-0/model.keras" for place in range(len(group))]
        ended = run_and_remove(workbench, "python", "-c", COMPARE, *paths, volumes=volumes)
        assert ended.code == 0, ended.err
        return dict(zip(group, json.loads(ended.out.splitlines()[-1]), strict=True))

    return described


@cases
def test_every_worker_says_that_it_is_done(trained, case):
    workers = case[0]
    results = trained.results()
    assert [result["status"] for result in results] == ["done"] * workers
    assert [result["task"]["index"] for result in results] == list(range(workers))
    assert {result["steps"] for result in results} == {100}


@pytest.mark.parametrize("case", [pytest.param(MIRRORED, marks=long), BOTH], ids=str)
def test_every_device_holds_a_replica(trained, case):
    workers, devices = case
    strategy = "mirrored" if workers == 1 else "multiworker"
    named = ",".join(f"CPU:{number}" for number in range(devices))
    said = f"up: strategy {strategy} on {named}, replicas in sync {workers * devices},"
    assert trained.output.count(said) == workers


@pytest.mark.parametrize(
    "case",
    [IN_CONTAINERS, *(pytest.param(one, marks=long) for one in LONG[1:] if one != MIRRORED)],
    ids=str,
)
def test_workers_sum_by_what_was_asked_for_and_by_default_over_a_ring(trained, case):
    workers, asked = case
    logged, noted = STRATEGIES[asked]
    said = f"up: strategy {logged} on CPU:0, replicas in sync {workers},"
    assert trained.output.count(said) == workers
    assert {result["strategy"] for result in trained.results()} == {noted}


@cases
def test_all_workers_end_with_identical_weights(trained):
    digests = {result["weights_sha256"] for result in trained.results()}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


@cases
def test_only_the_chief_writes_the_model(trained):
    chief, *others = trained.workers
    assert (chief / "model.keras").is_file()
    assert (chief / "saved_model/saved_model.pb").is_file()
    assert not [other for other in others if list(other.glob("*model*"))]


@pytest.mark.parametrize("group", [QUICK, pytest.param(LONG, marks=long)], ids=["quick", "long"])
def test_weights_do_not_depend_on_devices_or_workers(models_of, group):
    distances = {case: model["distance"] for case, model in models_of(group).items()}
    assert {case: distance for case, distance in distances.items() if distance >= 1e-4} == {}


@cases
def test_every_test_example_counts_once(trained, models_of, case):
    found, model = trained.metrics()[-1], models_of(group_of(case))[case]
    assert found["test_examples"] == DIGITS_TEST_EXAMPLES
    correct = found["test_accuracy"] * found["test_examples"]
    assert correct == pytest.approx(model["correct"], abs=1e-3)
    assert correct > DIGITS_TEST_EXAMPLES / 5
    assert found["test_loss"] == pytest.approx(model["loss"], rel=1e-5)

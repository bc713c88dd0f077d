"""Gradients that are sent as bfloat16 train as well as gradients sent as float32."""

from dataclasses import dataclass
from functools import cache

import pytest

from harness.loopback import Case, run_cases
from harness.sample import make_sample

WIRES = ["float32", "bfloat16"]
SEEDS = [42, 1, 2, 3, 4]
MAX_SECONDS = 3600  # each of five seeds of flowers takes some minutes
# tests/inside/test_gradients_wire.py tests the bytes that are sent.
pytestmark = [pytest.mark.long, pytest.mark.timeout(MAX_SECONDS)]
POINTS = 0.005
POINTS_OF_FLOWERS = 0.03  # chance alone may cause 0.02, with 500 pictures
PICTURES = 1000
FLOWERS = {
    "TRAINER_DATASET": "tf_flowers",
    "TRAINER_MODEL": "mobilenet_v2",
    "TRAINER_IMAGE_SIZE": "64",
    "TRAINER_GLOBAL_BATCH_SIZE": "16",
    "TRAINER_EPOCHS": "8",
}


@dataclass(frozen=True)
class Trained:
    """A run's test accuracy in its last epoch, and the number of its test examples."""

    accuracy: float
    examples: int


@pytest.fixture(scope="module")
def train(workbench, tmp_path_factory):
    """Train with a seed on two workers of a ring, once per wire; return a Trained for each wire."""

    def train(seed, volumes=(), **more):
        settings = {"TRAINER_COLLECTIVES": "ring", "TRAINER_SEED": f"{seed}", "MAX_RESTARTS": "0"}
        settings |= {"TRAINER_CHECKPOINT_STEPS": "0", **more}
        runs = {}
        for wire in WIRES:
            case = Case(wire, 2, settings | {"TRAINER_WIRE": wire})
            ended = run_cases(workbench, tmp_path_factory.mktemp("wire"), [case], volumes)
            runs[wire] = ended[wire].raise_unless_done()
        digests = {
            wire: {result["weights_sha256"] for result in run.results()}
            for wire, run in runs.items()
        }
        assert len(digests["bfloat16"]) == 1
        assert not digests["bfloat16"] & digests["float32"]  # else the wire makes no difference
        last = {wire: run.metrics()[-1] for wire, run in runs.items()}
        found = {
            wire: Trained(line["test_accuracy"], line["test_examples"])
            for wire, line in last.items()
        }
        print(f"seed {seed}: {found}")  # pytest shows it with -s, or where a test fails
        return found

    return train


@pytest.fixture(scope="module")
def digits(train):
    return cache(train)


@pytest.mark.parametrize("seed", SEEDS)
def test_digits_are_read_as_well(digits, seed):
    found = digits(seed)
    assert found["float32"].accuracy >= 0.97
    assert found["bfloat16"].accuracy >= found["float32"].accuracy - POINTS


@pytest.fixture(scope="module")
def flowers(train, workbench, tmp_path_factory):
    """Train on the sample of flowers, once per seed."""
    folder = tmp_path_factory.mktemp("flowers")
    make_sample(workbench, folder, PICTURES, "tf_flowers")
    return cache(lambda seed: train(seed, [f"{folder}:/data"], **FLOWERS))


@pytest.mark.parametrize("seed", SEEDS)
def test_flowers_are_learnt_with_each(flowers, seed):
    for found in flowers(seed).values():
        assert (found.examples, found.accuracy >= 0.8) == (PICTURES // 10, True)


def test_flowers_are_recognised_as_well_over_all_seeds(flowers):
    """Runs that differ only in rounding differ by some pictures, so the test compares means."""
    mean = {
        wire: sum(flowers(seed)[wire].accuracy for seed in SEEDS) / len(SEEDS) for wire in WIRES
    }
    print(f"mean of {len(SEEDS)} seeds: {mean}")
    assert mean["bfloat16"] >= mean["float32"] - POINTS_OF_FLOWERS

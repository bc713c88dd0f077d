"""Gradients that are sent as bfloat16 train as well as gradients sent as float32."""

from dataclasses import dataclass

import pytest

from harness.loopback import Case, run_cases
from harness.sample import make_sample

WIRES = ["float32", "bfloat16"]
SEEDS = [42, 1, 2, 3, 4]
MAX_SECONDS = 1200  # the flowers take some minutes
# tests/inside/test_gradients_wire.py tests the bytes that are sent.
pytestmark = [pytest.mark.long, pytest.mark.timeout(MAX_SECONDS)]
POINTS = 0.005
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


@pytest.mark.parametrize("seed", SEEDS)
def test_digits_are_read_as_well(train, seed):
    found = train(seed)
    assert found["float32"].accuracy >= 0.97
    assert found["bfloat16"].accuracy >= found["float32"].accuracy - POINTS


def test_flowers_are_learnt_with_each(train, workbench, tmp_path):
    """docs/explanation/speed.md has the accuracies of five seeds."""
    make_sample(workbench, tmp_path, PICTURES, "tf_flowers")
    for found in train(SEEDS[0], [f"{tmp_path}:/data"], **FLOWERS).values():
        assert (found.examples, found.accuracy >= 0.8) == (PICTURES // 10, True)

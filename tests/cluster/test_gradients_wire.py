"""Gradients that travel as bfloat16 train as well as those that travel as they are."""

from functools import cache

import pytest

from harness.loopback import Case, run_cases

WIRES = ["float32", "bfloat16"]
SEEDS = [42, 1, 2, 3, 4]
pytestmark = pytest.mark.long  # tests/inside/test_gradients_wire.py has what is sent
POINTS = 0.005


@pytest.fixture(scope="module")
def accuracy_of(workbench, tmp_path_factory):
    """The accuracies on digits that two workers of a ring end with, by what they send."""

    @cache
    def train(seed):
        settings = {"TRAINER_COLLECTIVES": "ring", "TRAINER_SEED": f"{seed}", "MAX_RESTARTS": "0"}
        settings["TRAINER_CHECKPOINT_STEPS"] = "0"
        cases = [Case(wire, 2, settings | {"TRAINER_WIRE": wire}) for wire in WIRES]
        ended = run_cases(workbench, tmp_path_factory.mktemp("wire"), cases)
        runs = {wire: ended[wire].raise_unless_done() for wire in WIRES}
        digests = {result["weights_sha256"] for result in runs["bfloat16"].results()}
        assert len(digests) == 1
        return {wire: run.metrics()[-1]["test_accuracy"] for wire, run in runs.items()}

    return train


@pytest.mark.parametrize("seed", SEEDS)
def test_digits_are_read_as_well(accuracy_of, seed):
    found = accuracy_of(seed)
    assert found["float32"] >= 0.97
    assert found["bfloat16"] >= found["float32"] - POINTS

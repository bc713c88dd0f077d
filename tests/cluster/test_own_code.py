"""A user's own model and data, mounted at /workspace and named module:function."""

import os
from pathlib import Path

import pytest

WORKSPACE = Path(__file__).parent / "workspace"


@pytest.fixture(scope="module")
def own(run):
    ended = run(
        # As a person would type it: from where they are.
        WORKSPACE_DIR=os.path.relpath(WORKSPACE),
        TRAINER_MODEL="own_model:build",
        TRAINER_DATASET="own_data:load",
        TRAINER_EPOCHS=3,
        TRAINER_GLOBAL_BATCH_SIZE=50,
        TRAINER_LEARNING_RATE=0.5,
    )
    return ended.raise_unless_done()


def test_own_model_learns_own_data(own):
    last = own.metrics()[-1]
    assert last["test_examples"] == 101
    assert last["test_accuracy"] > 0.9
    assert last["step"] == 3 * 12


def test_all_workers_agree(own):
    assert len({result["weights_sha256"] for result in own.results()}) == 1

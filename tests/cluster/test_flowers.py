"""MobileNetV2 learns pictures on one worker and on two: the handbook's training, on a sample."""

import pytest

from harness.sample import make_sample

PICTURES = 600
CHANCE = 1 / 5


@pytest.fixture(scope="module")
def flowers(workbench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flowers")
    make_sample(workbench, folder, PICTURES, "tf_flowers")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_mobilenet_recognises_pictures_that_it_has_not_seen(run, flowers, workers):
    ended = run(
        WORKERS=workers,
        DATA_DIR=flowers,
        TRAINER_DATASET="tf_flowers",
        TRAINER_MODEL="mobilenet_v2",
        TRAINER_IMAGE_SIZE=64,
        TRAINER_GLOBAL_BATCH_SIZE=16,
        TRAINER_EPOCHS=6,
    )
    last = ended.raise_unless_done().metrics()[-1]
    assert last["test_examples"] == PICTURES // 10
    assert last["test_accuracy"] > 3 * CHANCE
    assert len({result["weights_sha256"] for result in ended.results()}) == 1

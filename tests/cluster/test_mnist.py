"""`mnist` through the real tfds.load, from a small prepared set of real TFRecords."""

import pytest

from harness.ended import run_and_remove
from harness.small_mnist import PROGRAM, TEST_EXAMPLES, TRAIN_EXAMPLES

BATCH = 32
# test_preparing.py tests two workers that read such a set, with pictures of flowers.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def trained(run, workbench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    volumes = [f"{folder}:/prepared"]
    prepared = run_and_remove(workbench, "python", "-c", PROGRAM, volumes=volumes)
    assert prepared.code == 0, prepared.err
    assert (folder / "mnist/3.0.1/dataset_info.json").is_file()
    ended = run(
        DATA_DIR=folder,
        TRAINER_DATASET="mnist",
        TRAINER_EPOCHS=2,
        TRAINER_GLOBAL_BATCH_SIZE=BATCH,
    )
    return ended.raise_unless_done()


def test_trains_on_a_prepared_set_in_the_data_directory(trained):
    last = trained.metrics()[-1]
    assert last["test_examples"] == TEST_EXAMPLES
    assert last["step"] == 2 * (TRAIN_EXAMPLES // BATCH)


def test_learns_from_it(trained):
    first, last = trained.metrics()
    assert last["loss"] < first["loss"]

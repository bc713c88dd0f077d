"""The length of a run and the cut of its data, for any kind of data."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from noise import pictures

from cluster_trainer.data.examples import DataSet
from cluster_trainer.data.feeds import fit_arguments
from cluster_trainer.data.run_length import run_length_of
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig

ROWS = np.zeros([21, 4], np.float32)
BATCHES = tf.data.Dataset.from_tensor_slices((ROWS, ROWS)).batch(8)


@pytest.fixture
def config(tmp_path):
    return lambda **settings: TrainerConfig(run_dir=tmp_path, **settings)


class Batches(keras.utils.PyDataset):
    num_batches = 3


class Source:
    def __len__(self):
        return 21

    def __getitem__(self, index):
        return ROWS[index], 0.0


ARRAYS = {
    "inputs": ROWS,
    "dict": {"a": ROWS},
    "pair": (ROWS, ROWS),
    "weights": (ROWS, ROWS, np.ones(21)),
    "several": ([ROWS, ROWS], ROWS),
    "ragged": (tf.ragged.constant([[1], [1, 2], [3]] * 7), ROWS),
    "sparse": (tf.sparse.from_dense(ROWS + 1), ROWS),
    "source": Source(),
    "examples": pictures(21),
}


@pytest.mark.parametrize("data", ARRAYS.values(), ids=ARRAYS)
def test_examples_that_can_be_counted_are_cut_as_the_settings_say(config, data):
    plan = run_length_of(config(per_replica_batch_size=4, epochs=3), DataSet("own", data, None), 2)
    assert (plan.global_batch_size, plan.steps_per_epoch, plan.steps) == (8, 3, 9)
    assert [plan.examples_at(step) for step in (1, 3, 4)] == [8, 21, 29]
    assert fit_arguments(DataSet("own", data, None), config(), plan).get("batch_size", 8) == 8


@pytest.mark.parametrize("data", [BATCHES, Batches()], ids=["tf.data", "PyDataset"])
def test_what_comes_in_batches_says_how_many(config, data):
    plan = run_length_of(config(), DataSet("own", data, None), 2)
    assert (plan.global_batch_size, plan.steps_per_epoch) == (None, 3)
    with pytest.raises(ConfigurationError, match="they are the global ones"):
        run_length_of(config(global_batch_size=8), DataSet("own", data, None), 2)


def generator():
    yield ROWS, ROWS


ENDLESS = {"tf.data": BATCHES.repeat, "generator": generator}


@pytest.mark.parametrize("make", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_or_only_once_needs_a_length(config, make):
    with pytest.raises(ConfigurationError, match=r"TRAINER_STEPS_PER_EPOCH.*a number, since"):
        run_length_of(config(), DataSet("own", make(), None), 2)
    plan = run_length_of(config(steps_per_epoch=5, epochs=2), DataSet("own", make(), None), 2)
    assert plan.steps == 10


@pytest.mark.parametrize("make", ENDLESS.values(), ids=ENDLESS)
def test_data_without_an_end_are_refused_as_test_data(config, make):
    with pytest.raises(ConfigurationError, match="test data that end"):
        run_length_of(config(steps_per_epoch=5), DataSet("own", BATCHES, make()), 2)


def test_a_generator_may_be_read_once(config):
    plan = run_length_of(config(epochs=1), DataSet("own", generator(), None), 2)
    assert plan.steps is None

"""Data objects that draw from a generator of their own give two workers what they give one."""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from meeting_place import MeetingPlace

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data import random_access, same_data
from cluster_trainer.engine.data.sources.choice import source_of
from cluster_trainer.engine.data.sources.py_dataset import PyDatasetSource
from cluster_trainer.private import keras_names

SCRIPT = """
import json
import keras, numpy as np

ROWS = np.random.default_rng(1).normal(size=(32, 2)).astype("float32")

def noisy(rng, rows):
    x = ROWS[rows] + rng.normal(size=ROWS[rows].shape).astype("float32")
    return x, x.sum(-1, keepdims=True)

class Batches(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return noisy(self.rng, slice(index * 8, index * 8 + 8))

class Changing(Batches):
    def on_epoch_end(self):
        "May change the batches."

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", lambda y, p: (y - p) ** 2)  # its first and last batch are compared
told = model.fit(Changing(), validation_data=Batches(), epochs=2, shuffle=False, verbose=0).history
print("TOLD", json.dumps(told), flush=True)
"""


def flat(told):
    return np.concatenate([*told.values()])


def test_two_workers_draw_as_one(starts, tmp_path):
    (script := tmp_path / "script.py").write_text(SCRIPT)
    settings = {"TRAINER_CHECKPOINT_STEPS": "0"}
    with MeetingPlace(tmp_path / "two", 2, str(script), **settings) as place:
        assert place.wait() == [0, 0], place.logs
    alone = starts.start(script, run_dir=tmp_path / "one", **settings)
    assert alone.code == 0, alone.output
    for told in map(json.loads, re.findall("TOLD (.*)", place.logs)):
        np.testing.assert_allclose(flat(told), flat(alone.told[0]), rtol=1e-4)


class Noted(keras.utils.PyDataset):
    """Notes the batches that are read."""

    def __init__(self):
        super().__init__()
        self.read = []

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.read.append(index)
        return np.full((4, 2), len(self.read), np.float32), np.zeros((4, 1), np.float32)


def source_for(data):
    return PyDatasetSource(keras_names.PyDatasetAdapter(data), Replicas(), 0)


def test_a_comparison_reads_the_batches_that_keras_reads_and_no_others():
    keras_names.PyDatasetAdapter(expected := Noted()).get_tf_dataset()
    source = source_for(data := Noted())
    facts = source.found()
    assert facts == source.found() != {}
    source.shares(0, 0)
    assert data.read == expected.read == [0, 1]


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_that_was_read_ahead_is_used(first):
    source = source_for(data := Noted())
    before = source.found()
    batches = source.shares(0, first)
    source.look_ahead()
    assert source.found() != before
    source.begin_pass(0)
    assert [int(x[0, 0]) for x, _ in batches] == [3, 4, 5][: 3 - first]
    assert data.read == [0, 1, 0, 1, 2][:2] + [0, 1, 2][first:]


class Examples:
    """Single examples, with noise from a generator of its own or from the row's index."""

    def __init__(self, *seed):
        self.rng = np.random.default_rng(*seed) if seed else None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return (self.rng or np.random.default_rng(index)).normal(size=2)


@pytest.mark.parametrize(("seed", "warnings"), [((), 0), ((1,), 1)])
def test_examples_that_each_worker_draws_for_its_own_rows_cause_a_warning(seed, warnings, caplog):
    given = random_access.RandomAccess(Examples(*seed), 4)
    strategy = tf.distribute.get_strategy()
    source = source_of(keras_names.PyDatasetAdapter(given), Replicas(), strategy, 0)
    same_data.warn_of_own_draws("fit", source)
    assert caplog.text.count("fit: an example differs when it is read again") == warnings

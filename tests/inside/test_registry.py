import logging
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.data import registry, tfds_source
from cluster_trainer.data.pictures import tfds_pictures
from cluster_trainer.problems import ConfigurationError

NOWHERE = Path("/tmp/no-data")


@pytest.fixture
def own(monkeypatch):
    """A user's module, to which a test adds a function."""
    module = types.ModuleType("own_data")
    monkeypatch.setitem(sys.modules, "own_data", module)
    return module


@pytest.fixture
def said_in_log(caplog, monkeypatch):
    """The text of the log, wherever an earlier run in this process has sent it."""
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    caplog.set_level("INFO", "trainer")
    return lambda: caplog.text


def load(name, **keywords):
    return registry.load(name, NOWHERE, keywords.get("image_size"))


def test_digits_travel_in_the_image_as_real_pictures():
    digits = load("digits")
    assert (len(digits.train), len(digits.test), digits.num_classes) == (1437, 360, 10)
    assert digits.train.inputs.shape == (1437, 28, 28, 1)
    assert digits.train.inputs.dtype == np.uint8
    assert digits.train.inputs.max() == 255
    assert digits.name == "digits/1.0.0"


def test_the_splits_of_digits_share_no_picture():
    digits = load("digits")
    train, test = (
        {picture.tobytes() for picture in part.inputs} for part in (digits.train, digits.test)
    )
    assert not train & test


def test_image_size_resizes_pictures():
    assert load("digits", image_size=14).test.inputs.shape == (360, 14, 14, 1)


def test_own_function_may_return_arrays(own):
    own.load = lambda: ((np.zeros([6, 3]), np.arange(6)), (np.zeros([2, 3]), np.arange(2)))
    data = load("own_data:load")
    assert (len(data.train), len(data.test), data.num_classes) == (6, 2, 6)


def test_own_function_may_return_tf_data(own):
    part = tf.data.Dataset.from_tensor_slices((np.ones([5, 3], np.float32), np.arange(5)))
    own.load = lambda: (part, part)
    data = load("own_data:load")
    assert data.train.inputs.shape == (5, 3)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "labels", [np.zeros(3), -np.ones(3, int), np.zeros([3, 2], int)], ids=["floats", "-1", "rows"]
)
def test_labels_need_not_be_classes(own, labels):
    own.load = lambda: ((np.zeros([3, 2]), labels),) * 2
    data = load("own_data:load")
    assert data.num_classes is None
    assert data.train.typed_labels.dtype == (np.float32 if labels.dtype.kind == "f" else np.int64)


@pytest.mark.parametrize(
    "part",
    [
        (np.zeros([3, 2]), np.arange(3), np.ones(3)),
        ({"a": np.zeros(3)}, np.arange(3)),
        ([np.zeros([3, 2]), np.zeros([3, 4])], np.arange(3)),
        np.zeros([3, 2]),
        tf.data.Dataset.from_tensor_slices((np.zeros([4, 2]), np.arange(4))).batch(2),
    ],
    ids=["weights", "dict", "several inputs", "inputs alone", "batches"],
)
def test_what_fit_takes_stays_as_it_is(own, part):
    own.load = lambda: (part, None)
    data = load("own_data:load")
    assert data.train is part
    assert (data.test, data.num_classes, data.has_examples) == (None, None, False)


@pytest.mark.parametrize(
    ("dtype", "shape", "said"),
    [
        (np.uint8, [8, 8, 1], "uint8[8,8,1], scaled from 0..255 to 0..1"),
        (np.uint8, [12], "uint8[12], as they are"),
        (np.int64, [12], "int64[12], as they are"),
        (np.float64, [8, 8, 1], "float64[8,8,1], as float32"),
    ],
)
def test_what_becomes_of_own_inputs_is_said(own, said_in_log, dtype, shape, said):
    part = np.zeros([3, *shape], dtype), np.arange(3)
    own.load = lambda: (part, part)
    load("own_data:load")
    assert said in said_in_log()


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "NoneType"),
        (
            ((np.zeros([3, 2], int), np.arange(3)), (np.zeros([3, 2]), np.arange(3))),
            r"int64\[2\].*float64\[2\]",
        ),
        (
            ((np.zeros([3, 2]), np.arange(3)), (np.zeros([3, 4]), np.arange(3))),
            r"float64\[2\].*float64\[4\]",
        ),
        (((np.zeros([3, 2]), np.zeros(2, int)),) * 2, "belong|labels"),
        (((np.zeros([3, 2]), np.array(["a"] * 3)),) * 2, "numbers as labels"),
        ((np.zeros([3, 2]), np.arange(3), np.arange(3)), "3 parts"),
        (
            (tf.data.Dataset.from_tensor_slices((np.zeros([3, 2]), np.arange(3))), [1, 2, 3]),
            "gives single examples",
        ),
        (((np.zeros([0, 2]), np.zeros(0, int)),) * 2, "1 or more"),
        (((np.array(["a", "b"]), np.zeros(2, int)),) * 2, "numbers as inputs"),
    ],
)
def test_an_unusable_return_value_is_a_problem_with_the_data_set(own, returned, said):
    own.load = lambda: returned
    with pytest.raises(ConfigurationError, match=f"TRAINER_DATASET.*own_data:load.*({said})"):
        load("own_data:load")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["own_data:absent", "no_such_module:load"])
def test_a_function_that_is_not_there_is_a_problem(name):
    with pytest.raises(ConfigurationError, match=name):
        load(name)


def test_an_unknown_name_is_a_problem():
    with pytest.raises(ConfigurationError, match="no_such_set"):
        load("no_such_set")


@pytest.mark.parametrize(
    ("available", "chosen"),
    [
        (["test", "train"], ["train", "test"]),
        (["train", "validation"], ["train", "validation"]),
        (["train"], ["train[:90%]", "train[90%:]"]),
    ],
)
def test_evaluates_on_what_is_not_trained_on(available, chosen):
    assert tfds_source.splits_of(available) == chosen


def test_a_set_larger_than_memory_is_refused(monkeypatch):
    monkeypatch.setattr(tfds_pictures, "available_bytes", lambda: 10_000)
    with pytest.raises(ConfigurationError, match="memory"):
        load("digits")

"""A loss that is NaN on a share, and finite on the whole batch, is refused (78)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine.first_batch import nan
from cluster_trainer.problems import ExitCode
from conftest import strategy_of

INPUTS = np.random.default_rng(0).random((48, 4)).astype("float32")
TARGETS = INPUTS.sum(1, keepdims=True)
MASKED = np.where(np.arange(48)[:, np.newaxis] % 2, TARGETS, -1.0).astype("float32")
EMPTY = MASKED.copy()
EMPTY[20:24] = -1.0  # the second share of the third batch
WITHOUT = MASKED.copy()
WITHOUT[16:24] = -1.0  # the third batch
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@pytest.fixture(autouse=True)
def enough_time(monkeypatch):
    """Read all batches again on a busy machine, too."""
    monkeypatch.setattr(nan, "MOST_SECONDS", 600.0)


def over_what_counts(wanted, found):
    """Return the mean over the elements that a mask keeps."""
    squares = tf.boolean_mask(tf.square(wanted - found), wanted >= 0.0)
    return tf.reduce_mean(squares)


def fitted(targets, *, data=None, **options):
    """Fit on two devices, in batches of 8, and return the last loss."""
    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", over_what_counts, **options)
    given = [data] if data else [INPUTS, targets]
    size = {} if data else {"batch_size": 8}
    return model.fit(*given, **size, shuffle=False, verbose=0).history["loss"][-1]


def refused(call, capsys):
    with pytest.raises(SystemExit) as ended:
        call()
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    return capsys.readouterr().err


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_share_without_a_counted_element_is_refused(eagerly, capsys):
    """The first and the last batch, which are compared, show nothing."""
    said = refused(lambda: fitted(EMPTY, run_eagerly=eagerly), capsys)
    assert "'loss' of a batch: received \"nan on a" in said
    assert "mean_with_sample_weight" in said


def test_so_is_one_of_the_first_batch(capsys):
    said = refused(lambda: fitted(np.roll(EMPTY, -16, axis=0)), capsys)
    assert "'loss' of the first batch: received" in said


def test_a_batch_without_any_is_nan_as_on_one_device(capsys):
    assert np.isnan(fitted(WITHOUT))
    assert "WARNING" not in capsys.readouterr().out


def test_data_that_cannot_be_read_again_cause_a_warning(capsys):
    def generated():
        for begin in range(0, 48, 8):
            yield INPUTS[begin : begin + 8], EMPTY[begin : begin + 8]

    assert np.isnan(fitted(None, data=generated()))
    assert capsys.readouterr().out.count("On one device it may be finite") == 1

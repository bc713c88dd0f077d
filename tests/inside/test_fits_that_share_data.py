"""After a kill in the second of two fits, the order of its data stays the same."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keeping import fits_run_by

from cluster_trainer.checkpoints.checkpoint import Stage
from cluster_trainer.engine.data import pipelines
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.process.stall import Deadline, StallLimit
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from conftest import quick_first

ROWS = np.random.default_rng(0).normal(size=(42, 4)).astype("float32")
WANTED = ROWS.sum(axis=1, keepdims=True)


class InEpoch(keras.callbacks.Callback):
    """Knows its epoch and the folder of the fit's checkpoints."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.epoch = epoch


class Dies(InEpoch):
    """Dies within an epoch."""

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        if (self.epoch, batch) == (1, 3):
            raise RuntimeError("killed")


class DiesInValidation(InEpoch):
    """Dies in a validation once there is a checkpoint of the steps before it."""

    def on_test_batch_end(self, batch, logs=None):  # noqa: ARG002
        if self.epoch != 1:
            return
        limit = time.monotonic() + 60
        while not [*self.folder.glob(f"*.{Stage.TRAINED}-*")]:  # a short validation has none
            assert time.monotonic() < limit, [*self.folder.iterdir()]
            time.sleep(0.05)
        raise RuntimeError("killed")


def shuffled():
    return tf.data.Dataset.from_tensor_slices((ROWS, WANTED)).shuffle(42, seed=1)


def whole():
    """Return data with one pass an epoch."""
    return {"x": shuffled().batch(6)}


def endless():
    """Return data whose epochs end within a pass."""
    return {"x": shuffled().batch(6).repeat(), "steps_per_epoch": 5}


def parts():
    """Return data for training, and the rest of the same order for validation."""
    data = shuffled()
    return {"x": data.skip(6).batch(6), "validation_data": data.take(6).batch(6)}


def parts_shuffled_again():
    """Return such parts, with a second shuffle for the training only."""
    data = shuffled()
    return {
        "x": data.skip(6).shuffle(36, seed=2).batch(6),
        "validation_data": data.take(6).batch(6),
    }


def repeated():
    """Return data with two orders in one pass."""
    return {"x": shuffled().repeat(2).batch(6)}


def cached():
    """Return data whose passes all have the first pass's order."""
    return {"x": shuffled().cache().batch(6)}


def endless_and_filtered():
    """Return validation data that never end, though TensorFlow cannot know that."""
    data = shuffled().repeat().filter(lambda row, _: row[0] < 9).batch(6)
    rows = {"x": ROWS, "y": WANTED, "batch_size": 6}
    return {**rows, "validation_data": data, "validation_steps": 2}


def filtered_and_cut():
    """Return data that end, though TensorFlow does not know that beforehand."""
    data = shuffled().repeat().filter(lambda row, _: row[0] < 9).take(60)
    return {"x": data.batch(6)}


def chosen_among_others():
    """Return a sample of two data sets, which ends with the last of them."""
    data = tf.data.Dataset.sample_from_datasets(
        [shuffled().repeat(2), shuffled()], weights=[0.5, 0.5], seed=7
    )
    return {"x": data.batch(6)}


def validated_in_part():
    """Return validation data that end within their first order."""
    data = shuffled().repeat(2)
    rows = {"x": ROWS, "y": WANTED, "batch_size": 6}
    return {**rows, "validation_data": data.batch(2), "validation_steps": 2}


def zipped_with_an_endless_one():
    """Return data that end with the shorter part, whose length TensorFlow does not know."""
    data = shuffled().filter(lambda row, _: row[0] < 9).repeat(2)
    both = tf.data.Dataset.zip((data, tf.data.Dataset.counter()))
    return {"x": both.map(lambda one, _: one).batch(6)}


def twice():
    data = shuffled()
    return {"x": data.concatenate(data.map(lambda row, wanted: (-row, -wanted))).batch(6)}


@pytest.fixture
def fitted(tmp_path, began):
    """Return a function that fits twice with the same data, and returns weights and history."""

    def fit(folder, made, own=lambda _: None, *, shares=False):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        job = Job(TrainerConfig(run_dir=tmp_path, checkpoint_steps=2), Task())
        shared = made() if shares else None
        for number in (1, 2):
            place = tmp_path / folder / str(number)
            given_to = (job, StopRequest(print), Deadline(), place)
            options = FitOptions(*given_to, described={}, found=began.note)
            callbacks = [one for one in [own(place)] if one and number == 2]
            given = shared or made()
            with fits_run_by(KeptFit(options, model).run):
                history = model.fit(**given, epochs=3, verbose=0, callbacks=callbacks).history
        return model.get_weights(), history

    return fit


@pytest.mark.parametrize(
    ("made", "dies"),
    quick_first(
        2,
        [
            (endless, Dies),
            (parts, Dies),
            (parts_shuffled_again, DiesInValidation),
            (repeated, Dies),
            (filtered_and_cut, Dies),
            (validated_in_part, Dies),
            *[
                (made, Dies)
                for made in (
                    *(whole, parts_shuffled_again, cached, twice, endless_and_filtered),
                    *(zipped_with_an_endless_one, chosen_among_others),
                )
            ],
        ],
    ),
)
def test_a_kill_in_the_second_changes_nothing(fitted, began, made, dies):
    weights, history = fitted("undisturbed", made)
    with pytest.raises(RuntimeError, match="killed"):
        fitted("killed", made, own=dies)
    again, told = fitted("killed", made)
    assert began[-1] > 0
    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert history == told


def validated_apart():
    """Return validation data with their own order."""
    rows = {"x": ROWS, "y": WANTED, "batch_size": 6}
    return {**rows, "validation_data": shuffled().batch(6)}


@pytest.mark.parametrize("made", quick_first(1, [whole, validated_apart]))
def test_data_that_are_begun_again_have_the_limits_of_the_fit(fitted, made, monkeypatch):
    limited, limit = [], StallLimit.call

    def noted(self, function, **given):
        limited.append(function)
        return limit(self, function, **given)

    with pytest.raises(RuntimeError, match="killed"):
        fitted("killed", made, own=Dies)
    monkeypatch.setattr(StallLimit, "call", noted)
    fitted("killed", made)
    assert pipelines.repeat in limited


@pytest.mark.parametrize("made", quick_first(1, [whole, parts]))
def test_a_shuffle_that_a_fit_shares_with_one_that_had_ended_is_warned_of(fitted, made, caplog):
    with pytest.raises(RuntimeError, match="killed"):
        fitted("killed", made, own=Dies, shares=True)
    pipelines.warn_of_shared_shuffle.cache_clear()
    caplog.clear()
    fitted("killed", made, shares=True)
    assert [one.levelname for one in caplog.records if "`shuffle`" in one.message] == ["WARNING"]


def test_what_a_generator_predicts_is_none_of_the_fit(fitted):
    """Keras reads its first batches before the fit has an iterator."""
    double = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda rows: 2 * rows)])

    def batches(doubled):
        while True:
            yield doubled(ROWS[:6]), WANTED[:6]

    def predicting():
        return {"x": batches(lambda rows: double.predict(rows, verbose=0)), "steps_per_epoch": 4}

    def plain():
        return {"x": batches(lambda rows: 2 * rows), "steps_per_epoch": 4}

    weights, history = fitted("plain", plain)
    found, told = fitted("predicting", predicting)
    assert history == told
    for one, other in zip(weights, found, strict=True):
        np.testing.assert_array_equal(one, other)


class Looks(keras.callbacks.Callback):
    """Notes how many batches were given by the beginning of each epoch."""

    def __init__(self, given):
        super().__init__()
        self.given, self.found = given, []

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.found.append(len(self.given))


def test_a_generator_goes_on_where_fits_that_had_ended_have_left_it(fitted):
    """The count includes the two batches that Keras takes to look at."""
    given = []

    def batches():
        while True:
            given.append(1)
            yield ROWS[:6], WANTED[:6]

    def made():
        given.clear()
        return {"x": batches(), "steps_per_epoch": 20}

    with pytest.raises(RuntimeError, match="killed"):
        fitted("generated", made, own=Dies, shares=True)
    looks = Looks(given)
    fitted("generated", made, own=lambda _: looks, shares=True)
    assert looks.found[0] == 3 * 20 + 2

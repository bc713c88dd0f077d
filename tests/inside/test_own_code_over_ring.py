"""Steps that a user's own model may have over a ring, and data that a script may give it."""

import logging
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from keeping import fits_run_by
from meeting_place import MeetingPlace, weights_in
from test_building import (
    BATCHES,
    TWICE_X,
    TWICE_Y,
    in_one_worker,
    kept_in,
    on_two_devices,
    over_a_ring,
    strategy,  # noqa: F401  a fixture
)

from cluster_trainer.engine.replicas.optimizers import refusals
from cluster_trainer.problems import ConfigurationError
from conftest import quick_first

pytestmark = pytest.mark.usefixtures("keeps_nothing")
over_ring = pytest.mark.parametrize("strategy", [over_a_ring], indirect=True)
without_a_strategy = pytest.mark.parametrize(
    "strategy", quick_first(1, [over_a_ring, in_one_worker]), indirect=True
)
on_several = pytest.mark.parametrize(
    "strategy", quick_first(1, [over_a_ring, on_two_devices]), indirect=True
)


class OfPairs(keras.Model):
    """Has a `call` that takes a pair, and steps that make the pair from one array."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, pair):
        return self.dense(keras.ops.concatenate([pair[0], pair[1]], axis=1))

    def outputs_of(self, x):
        return self.dense(keras.ops.concatenate([x[:, :2], x[:, 2:]], axis=1))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.outputs_of(x) - y) ** 2)
        gradients = self.changed(tape.gradient(loss, self.trainable_variables))
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"error": loss}

    def changed(self, gradients):
        return gradients

    def test_step(self, data):
        return {"error": tf.reduce_mean((self.outputs_of(data[0]) - data[1]) ** 2)}

    def predict_step(self, x):
        return self.outputs_of(x)


class Clips(OfPairs):
    def changed(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.1)[0]


@without_a_strategy
def test_steps_may_give_call_something_else_than_fit_is_given(strategy):  # noqa: F811
    with strategy.scope():
        model = OfPairs()
        model.compile(keras.optimizers.SGD(0.01))
    history = model.fit(
        TWICE_X, TWICE_Y, epochs=3, validation_data=(TWICE_X, TWICE_Y), **BATCHES
    ).history
    assert history["error"][-1] < history["error"][0]
    found = model.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0, return_dict=True)
    assert found["error"] == pytest.approx(history["val_error"][-1])
    assert model.predict(TWICE_X, batch_size=8, verbose=0).shape == TWICE_Y.shape


@over_ring
@pytest.mark.parametrize("call", quick_first(1, ["train_on_batch", "test_on_batch"]))
def test_layers_that_each_worker_would_build_for_itself_are_refused(strategy, call):  # noqa: F811
    with strategy.scope():
        model = OfPairs()
        model.compile("sgd")
    with pytest.raises(Exception, match=r"OfPairs\.call"):
        getattr(model, call)(TWICE_X, TWICE_Y)
    assert not model.weights


@over_ring
def test_layers_that_an_eager_step_would_build_are_refused(strategy):  # noqa: F811
    with strategy.scope():
        model = OfPairs()
        model.compile("sgd", run_eagerly=True)
    with pytest.raises(ConfigurationError, match="layers that are built before `fit`"):
        model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)


# Each worker has its own seed.
SCRIPT = """
import json, os
import keras, numpy as np, tensorflow as tf

keras.utils.set_random_seed(int(json.loads(os.environ["TF_CONFIG"])["task"]["index"]))

class OfPairs(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, pair):
        return self.dense(keras.ops.concatenate([pair[0], pair[1]], axis=1))

    def train_step(self, data):
        x, y, *_ = data  # of one batch there are weights, too
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self([x[:, :2], x[:, 2:]], training=True) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}

rows = np.random.default_rng(0).random((32, 4), np.float32)
model = OfPairs()
model.compile("adam")
model.fit(rows, rows[:, :1], epochs=2, shuffle=False, verbose=0)
model.train_on_batch(rows, rows[:, :1])
print("ENDED", json.dumps(sum((one.ravel().tolist() for one in model.get_weights()), [])))
"""


@pytest.mark.long
def test_what_such_steps_build_is_alike_on_all_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
        assert place.wait() == [0, 0], place.logs
        one, other = (weights_in(worker.log.read_text()) for worker in place.workers)
    np.testing.assert_array_equal(one, other)
    assert len(one) == 4 * 3 + 3


IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
import keras, numpy as np

rows = np.ones((64, 4), "float32")

def train(_):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(rows, rows[:, :1], epochs=50, verbose=0)

with ThreadPoolExecutor(2) as threads:
    list(threads.map(train, range(2)))
"""


@pytest.mark.long
def test_fits_in_two_threads_are_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(IN_THREADS)
    with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
        assert place.wait() == [78, 78], place.logs
        assert all("two fits at a time" in one.log.read_text() for one in place.workers)


def made():
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse")
    return model


class Frame:
    """Stands in for pandas, which is not in the image: no array, but it converts to one."""

    def __init__(self, values):
        self._values, self.shape = values, values.shape

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype, copy=copy)


@over_ring
def test_a_model_is_built_for_a_batch_of_pandas(strategy):  # noqa: F811
    """`train_on_batch` builds a model in this way."""
    del strategy
    model = made()
    model._maybe_symbolic_build(data_batch=(Frame(TWICE_X), Frame(TWICE_Y[:, 0])))  # noqa: SLF001
    assert [weights.shape for weights in model.get_weights()] == [(4, 1), (1,)]
    assert model.optimizer.built


@over_ring
def test_predictions_of_a_batch_of_pandas(strategy):  # noqa: F811
    del strategy
    assert made().predict_on_batch(Frame(TWICE_X[:4])).shape[1:] == (1,)


class Ragged(keras.Model):
    """Gives outputs whose rank is unknown when a step is traced."""

    def call(self, inputs):
        return inputs

    def predict_step(self, x):
        return tf.numpy_function(lambda rows: rows, [x], tf.float32)


@over_ring
def test_predictions_of_unknown_rank_are_refused_in_plain_words(strategy):  # noqa: F811
    del strategy
    with pytest.raises(ValueError, match=r"rank is unknown .*tf.ensure_shape"):
        Ragged().predict(np.tile(TWICE_X, (10, 1)), verbose=0)  # more than each does by itself


@on_several
def test_an_optimizer_that_knows_no_variables_says_so_as_in_keras(strategy):  # noqa: F811
    class Unbuilt(OfPairs):
        def train_step(self, data):
            del data
            self.own.apply([tf.ones([4, 1])])
            return {}

    with strategy.scope():
        model = Unbuilt()
        model.dense.build((None, 4))
        model.own = keras.optimizers.SGD()
        model.compile("sgd")
        model.built = True
    with pytest.raises(ValueError, match="must already be built"):
        model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)


@pytest.mark.parametrize(("kind", "count"), [(OfPairs, 0), (Clips, 1)])
@over_ring
def test_a_step_that_clips_its_shares_gradients_is_told_of_once(
    strategy,  # noqa: F811
    caplog,
    kind,
    count,
):
    refusals.warn_of_clipped_shares.cache_clear()
    with strategy.scope(), caplog.at_level(logging.WARNING, "trainer"):
        for _ in range(2):
            model = kind()
            model.compile("sgd")
            model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)
    assert caplog.text.count("clips gradients before it applies them") == count


class Sometimes(OfPairs):
    """Applies its gradients only if `is_due` says so."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.outputs_of(x) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)

        def apply():
            self.optimizer.apply(gradients, self.trainable_variables)
            return tf.constant(1)

        tf.cond(self.is_due(loss), apply, lambda: tf.constant(0))
        return {"error": loss}

    def is_due(self, loss):
        del loss
        return self.optimizer.iterations < 3


class SometimesByLoss(Sometimes):
    def is_due(self, loss):
        return loss > 1


class SometimesByMetric(Sometimes):
    """Decides by the value of a metric on this replica."""

    def __init__(self):
        super().__init__()
        self.seen = keras.metrics.Mean(name="seen")

    def is_due(self, loss):
        due = self.seen.result() > 1
        self.seen.update_state(loss)
        return due


class SometimesByState(Sometimes):
    """Decides by numbers that are averaged over all replicas when the step ends."""

    def __init__(self):
        super().__init__()
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def is_due(self, loss):
        due = self.mean < 1
        self.mean.assign(loss)
        return due


class SometimesByNewState(SometimesByState):
    def is_due(self, loss):
        super().is_due(loss)
        return self.mean < 1


class SometimesByDraw(Sometimes):
    """Decides by a number that each replica draws for itself."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def is_due(self, loss):
        del loss
        return keras.random.uniform((), seed=self.seeds) > 0.5


class SometimesByFlag(Sometimes):
    """Decides by a number that the whole batch has in common."""

    def train_step(self, data):
        *pair, self.flag = data
        return super().train_step(pair)

    def is_due(self, loss):
        del loss
        return self.flag > 0


def with_flags():
    pairs = tf.data.Dataset.from_tensor_slices((TWICE_X, TWICE_Y)).batch(8)
    return pairs.map(lambda x, y: (x, y, tf.constant(1.0)))


@over_ring
@pytest.mark.parametrize(
    ("kind", "is_refused"),
    quick_first(
        2,
        [
            (Sometimes, False),
            (SometimesByFlag, False),
            (SometimesByState, False),
            (SometimesByLoss, True),
            (SometimesByMetric, True),
            (SometimesByNewState, True),
            (SometimesByDraw, True),
        ],
    ),
)
def test_gradients_that_a_share_decides_about_are_refused(strategy, kind, is_refused):  # noqa: F811
    with strategy.scope():
        model = kind()
        model.compile(keras.optimizers.SGD(0.01))
    refusal = pytest.raises(ConfigurationError, match="condition on the batch")
    with refusal if is_refused else nullcontext():
        if kind is SometimesByFlag:
            model.fit(with_flags(), verbose=0)
        else:
            model.fit(TWICE_X, TWICE_Y, **BATCHES)


def normalized(data):
    layer = keras.layers.Normalization()
    layer.adapt(data)
    model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


class DiesError(Exception):
    """Stands for the end of the process."""


def die(epoch, logs):
    del logs
    if epoch == 1:
        raise DiesError


def test_a_fit_that_goes_on_normalizes_with_what_its_checkpoint_holds(tmp_path):
    """Without a seed, a script may adapt the layer to other data at each start."""

    first, second = normalized(TWICE_X), normalized(TWICE_X * 9 + 5)
    second.evaluate(TWICE_X, TWICE_Y, verbose=0)
    dies = keras.callbacks.LambdaCallback(on_epoch_begin=die)
    with fits_run_by(kept_in(tmp_path, 1)), pytest.raises(DiesError):
        first.fit(TWICE_X, TWICE_Y, epochs=2, callbacks=[dies], **BATCHES)
    with fits_run_by(kept_in(tmp_path, 1)):
        history = second.fit(TWICE_X, TWICE_Y, epochs=2, **BATCHES).history
    expected = first.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0)
    assert history["loss"] == pytest.approx([expected] * 2, rel=1e-5)
    assert second.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0) == pytest.approx(expected)

"""A fit builds before its first step exactly the variables that Keras builds in that step.

So one worker traces a model's step only once. Steps that users have written are left to Keras.
"""

import os
import random
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keeping import fits_run_by
from keras import layers, ops
from keras.src.backend.common.global_state import set_global_attribute
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator
from meeting_place import MeetingPlace, weights_in

from cluster_trainer.checkpoints.checkpoint import uncounted
from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.engine.building import building
from cluster_trainer.fits.kept.kept_fit import FitOptions, KeptFit
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from conftest import quick_first, strategy_of

X = np.random.default_rng(0).random((32, 4), np.float32)
Y = (X.sum(1, keepdims=True) > 2).astype(np.float32)
# The second half of each batch repeats the first. A rehearsed ring takes this worker's values for
# the other worker's, so with these batches it must end as one worker does.
TWICE_X, TWICE_Y = (
    np.concatenate([half for start in range(0, 16, 4) for half in 2 * [one[start : start + 4]]])
    for one in (X, Y)
)
BATCHES = {"batch_size": 8, "shuffle": False, "verbose": 0}
pytestmark = pytest.mark.usefixtures("keeps_nothing")


def dense(kind=keras.Sequential):
    start = keras.initializers.GlorotUniform(seed=3)
    return kind([layers.Dense(1, "sigmoid", kernel_initializer=start)])


def traces(model):
    return model.train_function._many.experimental_get_tracing_count()  # noqa: SLF001


def kept_in(folder, every, found=lambda _: None):
    """Return a function that runs a fit as a script's fit, with checkpoints in a folder."""

    def around(fit, given, call):
        job = Job(TrainerConfig(run_dir=folder, checkpoint_steps=every), task=Task())
        stop, checkpoints = StopRequest(print), folder / "checkpoints"
        options = FitOptions(job, stop, Deadline(), checkpoints, described={}, found=found)
        return KeptFit(options, given.args[0]).run(fit, given, call)

    return around


def in_one_worker(_):
    return strategy_of(1), None


def on_two_devices(_):
    return strategy_of(2), None


def over_a_ring(folder):
    return strategy_of(1), kept_in(folder, 0)


@pytest.fixture(params=quick_first(1, [over_a_ring, in_one_worker, on_two_devices]))
def strategy(request, tmp_path):
    """The strategy of a model that trains in one worker, on two devices or over a ring."""
    strategy, around = request.param(tmp_path)
    if around is None:
        yield strategy
        return
    ring = RenewableRing(lambda: pytest.fail("nobody is met"), 2, comes_late=True)
    process_ring.use(ring)
    try:
        with ring.rehearsed(), fits_run_by(around):
            yield strategy
    finally:
        process_ring.use(None)


without_a_strategy = pytest.mark.parametrize(
    "strategy", quick_first(1, [over_a_ring, in_one_worker]), indirect=True
)


def by_hand(model, optimizer, loss, epochs=3):
    """Train as Keras does on one device, without its `fit`; return the weights."""
    for _ in range(epochs):
        for start in range(0, len(TWICE_X), 8):
            x, y = TWICE_X[start : start + 8], TWICE_Y[start : start + 8]
            with tf.GradientTape() as tape:
                total = loss(y, model(x, training=True)) + sum(model.losses)
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(total, variables), variables)
    return model.get_weights()


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("keywords", "updates"),
    quick_first(1, [({}, 8), ({"use_ema": True, "gradient_accumulation_steps": 2}, 4)]),
)
def test_a_fit_traces_its_steps_once(keywords, updates):
    model = dense()
    optimizer = keras.optimizers.Adam(0.01, **keywords)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy", "auc"])
    model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X, Y), shuffle=False, verbose=0)
    assert traces(model) == 1
    assert int(optimizer.iterations) == updates


def test_whatever_is_built_already_a_fit_traces_its_steps_once(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        model.compile(optimizer, "mse", metrics=["mae"])  # as a model that was loaded
    model.fit(TWICE_X, TWICE_Y, **BATCHES)
    assert traces(model) == 1
    with strategy.scope():
        model.compile("adam", "mse", metrics=["mae"])
    model.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0)
    model.fit(TWICE_X, TWICE_Y, **BATCHES)
    assert traces(model) == 1


class Aux(layers.Layer):
    """Has a layer that only training calls, to add a loss."""

    def __init__(self):
        super().__init__()
        self.kept, self.left = (
            layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(seed=seed))
            for seed in (1, 2)
        )

    def call(self, inputs, training=None):
        hidden = self.kept(inputs)
        if training:
            self.add_loss(ops.mean(self.left(hidden) ** 2))
        return hidden


class WithAux(keras.Model):
    def __init__(self):
        super().__init__()
        self.aux = Aux()
        self.last = layers.Dense(1, kernel_initializer="ones")

    def call(self, inputs, training=None):
        return self.last(self.aux(inputs, training=training))


class OwnStepWithAux(WithAux):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return self.compute_metrics(x, y, outputs)


def functional():
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(1, kernel_initializer="ones")(Aux()(inputs)))


EACH_ONCE = [(in_one_worker, functional), (on_two_devices, WithAux), (over_a_ring, OwnStepWithAux)]


@pytest.mark.parametrize("evaluates", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("strategy", "make"),
    [
        *EACH_ONCE,
        *(
            pytest.param(where, make, marks=pytest.mark.long)
            for where in (in_one_worker, on_two_devices, over_a_ring)
            for make in (WithAux, OwnStepWithAux, functional)
            if (where, make) not in EACH_ONCE
        ),
    ],
    indirect=["strategy"],
)
def test_layers_that_only_training_calls_are_trained(strategy, make, evaluates):
    expected = by_hand(make(), keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError())
    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    if evaluates:
        model.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0)
    model.fit(TWICE_X, TWICE_Y, epochs=3, **BATCHES)
    assert_same(model.get_weights(), expected)


@pytest.mark.parametrize(
    ("strategy", "make"),
    quick_first(1, [(in_one_worker, functional), (on_two_devices, WithAux)]),
    indirect=["strategy"],
)
def test_such_layers_are_trained_on_single_batches(strategy, make):
    expected = by_hand(make(), keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError(), 1)
    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    for start in range(0, len(TWICE_X), 8):
        model.train_on_batch(TWICE_X[start : start + 8], TWICE_Y[start : start + 8])
    assert_same(model.get_weights(), expected)


class Whole(keras.Model):
    """Has all the state that a call in training may change; its `call` is a tf.function."""

    def __init__(self):
        super().__init__()
        self.parts = keras.Sequential(
            [
                keras.Input((4,)),
                layers.BatchNormalization(momentum=0.5),
                layers.Dropout(0.5, seed=1),
            ]
        )
        self.last = layers.Dense(1, kernel_initializer="ones")
        self.last.build((None, 4))

    @tf.function
    def call(self, inputs, training=None):
        return self.last(self.parts(inputs, training=training))


def test_what_training_changes_is_changed_by_its_steps_alone():
    """A tf.function that is called only to build would keep a trace without these changes."""
    expected = by_hand(Whole(), keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError())
    model = Whole()
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    model.fit(TWICE_X, TWICE_Y, epochs=3, **BATCHES)
    assert_same(model.get_weights(), expected)


class TwoInTraining(keras.Model):
    """Has a second output in training."""

    def __init__(self):
        super().__init__()
        self.one, self.other = layers.Dense(1), layers.Dense(1)

    def call(self, inputs, training=None):
        outputs = self.one(inputs), self.other(inputs)
        return outputs if training else outputs[0]


def test_losses_and_metrics_are_those_of_the_outputs_of_training(strategy):
    with strategy.scope():
        model = TwoInTraining()
        model.compile("sgd", ["mse", "mae"], metrics=[["mae"], ["mse"]])
    history = model.fit(TWICE_X, (TWICE_Y, TWICE_Y), **BATCHES).history
    assert len(history) == 5  # the loss, and a loss and a metric for each output
    assert traces(model) == 1


def test_a_loss_scale_is_that_of_each_step():
    """If the trace of a step builds the optimizer, Keras keeps the first loss scale for good."""
    model = keras.Sequential([keras.layers.Dense(1)])
    inner = keras.optimizers.SGD(0.0)
    scaled = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**127)
    model.compile(scaled, "mse")
    model.fit(X * 100, Y, batch_size=8, epochs=10, verbose=0)
    assert 0 < int(inner.iterations) < 40
    assert float(scaled.dynamic_scale) < 2.0**127


class OfParts(keras.Model):
    """Has no `call`; its own step scales the losses of two optimizers."""

    def __init__(self):
        super().__init__()
        self.parts = [
            keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_initializer="ones")])
            for _ in range(2)
        ]

    def compile(self, optimizers):
        super().compile(optimizers[0])
        self.optimizers = optimizers

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(ops.mean((part(x) - y) ** 2))
            gradients = tape.gradient(loss, part.trainable_variables)
            optimizer.apply(gradients, part.trainable_variables)
        return {}


def scaled():
    inner = keras.optimizers.SGD(0.01)
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**127)


def are_trained_in_parts(strategy, train):
    with strategy.scope():
        model = OfParts()
        model.compile([scaled(), scaled()])
    train(model)
    for optimizer in model.optimizers:
        assert 0 < optimizer.iterations.numpy() < 40
        assert optimizer.dynamic_scale.numpy() < 2.0**127


def fits(model):
    model.fit(TWICE_X * 100, TWICE_Y, epochs=10, **BATCHES)


def trains_on_batches(model):
    for start in 10 * [*range(0, len(TWICE_X), 8)]:
        model.train_on_batch(TWICE_X[start : start + 8] * 100, TWICE_Y[start : start + 8])


def test_a_loss_scale_of_an_optimizer_that_a_step_builds_is_that_of_each_step(strategy):
    """TensorFlow traces the step again, because the first trace has created variables."""
    are_trained_in_parts(strategy, fits)


@pytest.mark.parametrize("strategy", [in_one_worker, on_two_devices], indirect=True)
def test_a_loss_scale_of_an_optimizer_that_a_single_batch_builds_is_that_of_each_step(strategy):
    are_trained_in_parts(strategy, trains_on_batches)


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def test_a_train_step_of_ones_own_is_traced_as_keras_does():
    model = dense(OwnStep)
    model.compile("adam", "mse")
    history = model.fit(X, Y, batch_size=8, verbose=0).history
    assert [*history] == ["loss"]
    assert traces(model) == 2


def test_what_cannot_be_built_early_is_built_by_its_first_step():
    class Refuses(keras.Model):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("not yet")
            return self.dense(inputs)

    model = Refuses()
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 4


def several(inner):
    chosen = keras.optimizers.OptimizerMap(inner)
    return keras.optimizers.MultiOptimizer(chosen)


@pytest.mark.parametrize(
    "wrap",
    quick_first(
        1, [lambda inner: keras.optimizers.LossScaleOptimizer(inner, name="scaled"), several]
    ),
)
def test_variables_are_called_as_if_a_step_had_built_them(wrap):
    """Checkpoints of earlier versions and of fits with `run_eagerly` have these names."""
    model, other = two_layers(), two_layers()
    model.compile(wrap(keras.optimizers.SGD(0.01, momentum=0.9, name="inner")), "mse")
    model.fit(TWICE_X, TWICE_Y, **BATCHES)
    assert traces(model) == 1
    optimizer = wrap(keras.optimizers.SGD(0.01, momentum=0.9, name="inner"))
    by_hand(other, optimizer, keras.losses.MeanSquaredError(), 1)
    found, expected = (
        uncounted([variable.path for variable in one.variables])
        for one in (model.optimizer, optimizer)
    )
    assert found == expected


class Reluctant(keras.metrics.Metric):
    """Fails when it is called for the first time."""

    calls = 0

    def update_state(self, *_, sample_weight=None):  # noqa: ARG002  Keras gives it by name
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("not yet")

    def result(self):
        return 1.0


def test_of_what_could_not_be_built_early_nothing_is_left():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, [layers.Dense(1, name=name)(inputs) for name in "ab"])
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], [Reluctant(name="late")]])
    history = model.fit(X, (Y, Y), batch_size=8, verbose=0).history
    assert sorted(history) == ["a_loss", "a_mae", "b_late", "b_loss", "loss"]
    assert len(model._compile_loss.metrics) == 2  # noqa: SLF001  one for each output


class MakesOfNumbers(layers.Layer):
    """Makes a variable as Keras's layers do, builds a layer, and makes a variable from numbers."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(2, kernel_initializer="ones")
        self.units, self.others = [], {"named": [], "paired": ([],)}

    def build(self, shape):
        self.k = self.add_weight(shape=(2, 2), initializer="ones")
        self.inner.build(shape)
        for held in self.held():
            held.append(layers.Dense(1))
        self.scale = keras.Variable(np.full(2, 0.5, np.float32))

    def held(self):
        return self.units, self.others["named"], self.others["paired"][0]

    def call(self, inputs):
        return self.inner(inputs) @ self.k * self.scale


class OwnStepOfNumbers(keras.Sequential):
    train_step = OwnStepWithAux.train_step


@pytest.mark.parametrize(
    ("strategy", "kind"),
    quick_first(
        1,
        [
            (in_one_worker, keras.Sequential),
            (on_two_devices, keras.Sequential),
            (over_a_ring, OwnStepOfNumbers),
        ],
    ),
    indirect=["strategy"],
)
def test_a_layer_whose_variables_are_made_of_numbers_is_built_once(strategy, kind):
    def make():
        return kind([MakesOfNumbers(), layers.Dense(1, kernel_initializer="ones")])

    expected = by_hand(make(), keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError())
    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    model.fit(TWICE_X, TWICE_Y, epochs=3, **BATCHES)
    assert [len(held) for held in model.layers[0].held()] == [1, 1, 1]
    assert_same(model.get_weights(), expected)


class Branches(keras.Model):
    """Has a function that AutoGraph must rewrite."""

    def __init__(self):
        super().__init__()
        self.last = layers.Dense(1, kernel_initializer="ones")

    @tf.function
    def halved(self, x):
        if tf.reduce_sum(x) > 0:
            x = x / 2
        return x

    def call(self, x):
        return self.last(self.halved(x))


# Keras runs nothing eagerly on several devices.
@pytest.mark.parametrize(
    ("strategy", "run_eagerly"),
    quick_first(
        1,
        [
            (in_one_worker, False),
            (in_one_worker, True),
            (on_two_devices, False),
            (over_a_ring, False),
            (over_a_ring, True),
        ],
    ),
    indirect=["strategy"],
)
def test_functions_that_autograph_reads_are_no_hindrance(strategy, run_eagerly):
    expected = by_hand(Branches(), keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError())
    with strategy.scope():
        model = Branches()
        model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=run_eagerly)
    model.fit(TWICE_X, TWICE_Y, epochs=3, **BATCHES)
    assert_same(model.get_weights(), expected)


class LateBranches(Branches):
    """Makes its layer in its first call."""

    def __init__(self):
        super().__init__()
        self.last = None

    def call(self, x):
        if self.last is None:
            self.last = layers.Dense(1)
        return super().call(x)


def test_a_seed_draws_what_it_draws_in_keras(strategy):
    keras.utils.set_random_seed(7)
    other = LateBranches()
    other(TWICE_X[:8])
    drawn = random.random()
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = LateBranches()
        model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)
    assert_same(model.get_weights(), other.get_weights())
    if strategy.num_replicas_in_sync == 1:  # else draws are spread over replicas
        assert random.random() == drawn


class Counts(MakesOfNumbers):
    """Also counts its calls."""

    def build(self, shape):
        super().build(shape)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs):
        self.calls.assign(self.calls + 1)
        return super().call(inputs)


@pytest.mark.parametrize("strategy", [on_two_devices, over_a_ring], indirect=True)
def test_what_a_call_on_zeros_would_change_is_refused(strategy):
    with strategy.scope():
        model = keras.Sequential([Counts(), layers.Dense(1)])
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"a call assigns to .*/calls, which it creates itself"):
        model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)


class Measures(MakesOfNumbers):
    """Updates a metric in its calls, and draws from Keras's own generator."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean()

    def call(self, inputs):
        self.mean.update_state(ops.mean(inputs))
        return super().call(inputs) + 0 * keras.random.uniform(())


@pytest.mark.parametrize("strategy", [over_a_ring], indirect=True)
@pytest.mark.parametrize("has_drawn", quick_first(1, [False, True]))
def test_a_call_on_zeros_leaves_metrics_and_keras_seed_as_they_were(strategy, has_drawn):
    def make():
        return keras.Sequential([Measures(), layers.Dense(1, kernel_initializer="ones")])

    def note(_):
        generator = global_seed_generator()
        noted.append((model.layers[0].mean.count.numpy(), [*generator.state.numpy()]))

    noted = []
    expected = by_hand(make(), keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError(), 1)
    set_global_attribute(GLOBAL_SEED_GENERATOR, None)
    if has_drawn:
        keras.random.uniform(())
        seed = [*global_seed_generator().state.numpy()]
    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.SGD(0.01), "mse")
    noting = keras.callbacks.LambdaCallback(on_train_begin=note)
    model.fit(TWICE_X, TWICE_Y, callbacks=[noting], **BATCHES)
    assert_same(model.get_weights(), expected)
    ((count, found),) = noted
    assert count == 0
    assert found == (seed if has_drawn else [found[0], 0])  # each draw changes both of its numbers


@pytest.mark.parametrize("strategy", [over_a_ring], indirect=True)
def test_parts_that_each_worker_would_build_for_itself_are_refused(strategy):
    with strategy.scope():
        model = OnePart()
        model.part = keras.Sequential([layers.Dense(1, name="late")], name="part")
        model.compile("sgd", run_eagerly=True)
    with pytest.raises(ConfigurationError) as refused:
        model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)
    (problem,) = refused.value.problems
    assert (problem.received, model.name in problem.name) == ("late", True)


class OnePart(keras.Model):
    """Has no `call`, like a GAN."""

    def __init__(self):
        super().__init__()
        self.part = keras.Sequential(
            [keras.Input((4,)), layers.Dense(1, kernel_initializer="ones")]
        )

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean((self.part(x, training=True) - y) ** 2)
        variables = self.part.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@without_a_strategy
def test_parts_without_a_call_are_trained_eagerly(strategy):
    with strategy.scope():
        model = OnePart()
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
    before = model.get_weights()
    model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)
    assert (model.get_weights()[0] != before[0]).all()


class Doubles(layers.Layer):
    """Has no variables, and no `build`."""

    def call(self, inputs):
        return 2 * inputs


@pytest.mark.parametrize("strategy", [over_a_ring], indirect=True)
def test_layers_that_make_no_variables_need_not_be_built(strategy):
    with strategy.scope():
        model = OnePart()
        dense = layers.Dense(1)
        dense.build((None, 4))
        model.part = keras.Sequential([Doubles(), layers.Rescaling(0.5), layers.Flatten(), dense])
        model.others = [
            layers.Concatenate(),
            layers.Lambda(lambda one: one),
            layers.Reshape((4,)),
            layers.TimeDistributed(layers.ZeroPadding2D()),
            layers.UpSampling2D(),
        ]
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
    before = dense.get_weights()
    model.fit(TWICE_X, TWICE_Y, epochs=1, **BATCHES)
    assert (dense.get_weights()[0] != before[0]).all()


class DrawsFromNumPy(layers.Layer):
    def call(self, inputs):
        return inputs * np.random.uniform(0.5, 1.5)  # noqa: NPY002  as a script may


class DrawsInItsCall(keras.Model):
    def __init__(self):
        super().__init__()
        self.draws, self.last = DrawsFromNumPy(), layers.Dense(1, kernel_initializer="ones")

    def call(self, inputs):
        return self.last(self.draws(inputs))


@without_a_strategy
@pytest.mark.parametrize("is_sequential", quick_first(1, [True, False]))
def test_layers_of_an_eager_model_draw_from_numpy_what_they_draw_by_hand(strategy, is_sequential):
    def make():
        model = DrawsInItsCall()
        return keras.Sequential([model.draws, model.last]) if is_sequential else model

    np.random.seed(3)  # noqa: NPY002
    expected = by_hand(make(), keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError(), 1)
    np.random.seed(3)  # noqa: NPY002
    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    model.fit(TWICE_X, TWICE_Y, **BATCHES)
    assert_same(model.get_weights(), expected)


@without_a_strategy
def test_an_evaluation_builds_no_optimizer(strategy):
    """The optimizer's variables would take memory for a model that is never trained."""
    with strategy.scope():
        model = dense()
        model.compile("adam", "mse", metrics=["mae"])
    model.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0)
    model.predict(TWICE_X, batch_size=8, verbose=0)
    assert not model.optimizer.built


def test_an_evaluation_in_a_scope_builds_the_optimizer_as_in_keras():
    """A script may load the optimizer's variables next."""
    with strategy_of(2).scope():
        model = WithAux()
        model.compile("adam", "mse", metrics=["mae"])
    model.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0)
    assert model.optimizer.built
    assert len(model.trainable_variables) == 6


class Evaluates(keras.callbacks.Callback):
    def __init__(self, other):
        super().__init__()
        self.other = other

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.other.evaluate(TWICE_X, TWICE_Y, batch_size=8, verbose=0)


@pytest.mark.long
@without_a_strategy
def test_an_evaluation_by_a_callback_of_a_fit_builds_no_optimizer(strategy):
    with strategy.scope():
        model, other = dense(), dense()
        for one in (model, other):
            one.compile("adam", "mse", metrics=["mae"])
    model.fit(TWICE_X, TWICE_Y, callbacks=[Evaluates(other)], **BATCHES)
    assert model.optimizer.built
    assert not other.optimizer.built


def two_layers():
    first = layers.Dense(3, "tanh", kernel_initializer=keras.initializers.GlorotUniform(seed=4))
    return keras.Sequential([keras.Input((4,)), first, layers.Dense(1, kernel_initializer="ones")])


def with_first_frozen(strategy):
    with strategy.scope():
        model = two_layers()
        model.layers[0].trainable = False
        model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def setting(trainable, hook):
    def set_it(*_, **__):
        callback.model.layers[0].trainable = trainable

    callback = keras.callbacks.LambdaCallback(**{hook: set_it})
    return callback


@without_a_strategy
def test_a_callback_may_thaw_layers_before_it_begins(strategy):
    expected = by_hand(two_layers(), keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError())
    model = with_first_frozen(strategy)
    thaw = setting(True, "on_train_begin")  # noqa: FBT003
    model.fit(TWICE_X, TWICE_Y, epochs=3, callbacks=[thaw], **BATCHES)
    assert_same(model.get_weights(), expected)


@pytest.mark.parametrize("strategy", [on_two_devices], indirect=True)
def test_layers_that_are_thawed_after_a_scope_has_built_the_optimizer_are_told_of(strategy):
    model = with_first_frozen(strategy)
    thaw = setting(True, "on_train_begin")  # noqa: FBT003
    with pytest.raises(ValueError, match=r"was built without .*kernel.* before `compile`"):
        model.fit(TWICE_X, TWICE_Y, callbacks=[thaw], **BATCHES)


@pytest.mark.parametrize("hook", quick_first(2, ["on_epoch_begin", "on_train_batch_begin"]))
def test_a_callback_may_freeze_layers_before_the_first_step(strategy, hook):
    with strategy.scope():
        model = two_layers()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    before = model.layers[0].get_weights()
    freeze = setting(False, hook)  # noqa: FBT003
    model.fit(TWICE_X, TWICE_Y, epochs=3, callbacks=[freeze], **BATCHES)
    assert_same(model.layers[0].get_weights(), before)
    assert model.optimizer.iterations.numpy() == 12


@pytest.mark.parametrize("strategy", [over_a_ring], indirect=True)
def test_over_a_ring_layers_that_are_thawed_too_late_are_told_of(strategy):
    """Keras accepts this on one device; over a ring, the step is traced before the first epoch."""
    model = with_first_frozen(strategy)
    thaw = setting(True, "on_epoch_begin")  # noqa: FBT003
    with pytest.raises(ValueError, match="in a callback's `on_train_begin`"):
        model.fit(TWICE_X, TWICE_Y, callbacks=[thaw], **BATCHES)


class Remembers(keras.optimizers.SGD):
    """Remembers the weights that it was built with."""

    def build(self, variables):
        super().build(variables)
        self.first = [
            self.add_variable(one.shape, initializer=lambda *_, one=one, **__: one.numpy())
            for one in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)


@pytest.mark.long
@without_a_strategy
def test_an_optimizer_is_built_for_the_weights_that_a_callback_has_loaded(strategy):
    with strategy.scope():
        model = two_layers()
        model.compile(Remembers(0.0), "mse")
    weights = [np.full_like(one, 0.25) for one in model.get_weights()]
    load = keras.callbacks.LambdaCallback(on_train_begin=lambda _: model.set_weights(weights))
    model.fit(TWICE_X, TWICE_Y, callbacks=[load], **BATCHES)
    assert_same([one.numpy() for one in model.optimizer.first], weights)


class Dies(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        raise RuntimeError("killed")


@pytest.mark.parametrize(
    ("first", "then"),
    quick_first(
        1,
        [
            (True, False),
            (False, True),
            (False, False),
            (True, True),
        ],
    ),
)
def test_a_fit_goes_on_whatever_has_built_its_variables(tmp_path, began, first, then):
    def fit(run_eagerly, *callbacks):
        keras.utils.clear_session()
        model = WithAux()
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), name="scaled")
        model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=run_eagerly)
        data = {"validation_data": (TWICE_X, TWICE_Y), "callbacks": callbacks}
        model.fit(TWICE_X, TWICE_Y, epochs=3, **BATCHES, **data)
        return model.get_weights()

    expected = fit(first)
    with fits_run_by(kept_in(tmp_path, 2, began.note)):
        with pytest.raises(RuntimeError, match="killed"):
            fit(first, Dies())
        assert_same(fit(then), expected)
    assert began == [0, 4]


def freezing_at_first():
    """Return a callback that freezes a layer as the first epoch begins."""

    def freeze(epoch, _):
        if epoch == 0:
            callback.model.layers[0].trainable = False

    callback = keras.callbacks.LambdaCallback(on_epoch_begin=freeze)
    return callback


@pytest.mark.parametrize("optimizer", quick_first(1, ["sgd", "adam"]))
def test_a_fit_that_would_train_other_layers_than_before_is_refused(tmp_path, caplog, optimizer):
    def fit(*callbacks):
        keras.utils.clear_session()
        model = two_layers()
        model.compile(optimizer, "mse")
        model.fit(TWICE_X, TWICE_Y, epochs=3, **BATCHES, callbacks=[*callbacks])

    with fits_run_by(kept_in(tmp_path, 2)):
        with pytest.raises(RuntimeError, match="killed"):
            fit(freezing_at_first(), Dies())
        assert "has frozen or thawed layers" in caplog.text
        with pytest.raises(ConfigurationError) as refused:
            fit(freezing_at_first())
    problem, *_ = refused.value.problems
    assert (problem.received, problem.accepted[:1]) == ("4", "2")


def test_over_a_ring_a_fit_that_freezes_layers_is_refused_at_once(tmp_path):
    ring = RenewableRing(lambda: pytest.fail("nobody is met"), 2, comes_late=True)
    process_ring.use(ring)
    try:
        with ring.rehearsed(), fits_run_by(kept_in(tmp_path, 2)):
            model = two_layers()
            model.compile(keras.optimizers.Adam(0.01), "mse")
            with pytest.raises(ValueError, match="layers were frozen after the first step"):
                model.fit(TWICE_X, TWICE_Y, **BATCHES, callbacks=[freezing_at_first()])
    finally:
        process_ring.use(None)


SCRIPT = """
import json
import keras, numpy as np, tensorflow as tf
from keras import layers, ops

class Aux(keras.Model):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.aux = layers.Dense(4), layers.Dense(1), layers.Dense(2)

    def call(self, inputs, training=None):
        hidden = self.body(inputs)
        if training:
            self.add_loss(ops.mean(self.aux(hidden) ** 2))
        return self.head(hidden)

keras.utils.set_random_seed(5)
noise = np.random.default_rng(0)
inputs = noise.random((50, 6), np.float32)
model = Aux()
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
model.fit(inputs, inputs.sum(1, keepdims=True), batch_size=16, epochs=5, verbose=0)
values = [weights.ravel().tolist() for weights in model.get_weights()]
print("ENDED", json.dumps(sum(values, [])), flush=True)
"""


@pytest.mark.long
def test_two_workers_train_layers_that_only_training_calls(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    variables = os.environ | {"TRAINER_RUN_DIR": str(tmp_path / "alone")}
    del variables["TRAINER_CHECKPOINT_STEPS"]
    command = [sys.executable, str(script)]
    alone = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    with MeetingPlace(tmp_path / "together", 2, str(script)) as place:
        assert place.wait() == [0, 0], place.logs
        found = [weights_in(worker.log.read_text()) for worker in place.workers]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], weights_in(alone.stdout), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("works", [True, False])
def test_keras_warnings_of_a_way_to_build_that_fails_are_not_shown(recwarn, works):
    def part(*_):
        warnings.warn("looks like it has unbuilt state", stacklevel=1)
        if not works:
            raise TypeError

    assert building._try(dense(), part, (X, Y)) == works  # noqa: SLF001
    assert [str(one.message) for one in recwarn] == works * ["looks like it has unbuilt state"]


def test_no_data_set_is_made_while_functions_are_called_as_pythons_are(recwarn):
    """TensorFlow would warn of an option that nobody has set."""
    with strategy_of(2).scope():
        model = dense(OwnStep)
        model.compile("sgd", "mse")
    model.fit(X, Y, **BATCHES)
    of_option = "option does not apply to tf.data functions"
    assert not [one for one in recwarn if of_option in str(one.message)]
    with building._functions_inlined(), pytest.warns(UserWarning, match=of_option):  # noqa: SLF001
        tf.data.Dataset.range(2).map(tf.identity)

"""Small programs that end as on one device only if no step changes a share's gradients or state.

Each program returns its trained values by name. As a script, this file is one worker, and prints
the values.
"""

import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer import mean

random = np.random.default_rng(0)
# The last batch has one example, so that one of two replicas has none.
X = random.normal(size=(25, 4)).astype("float32")
Y = (X @ np.array([[1], [2], [-1], [0.5]], "float32") + 0.1).astype("float32")
EPOCHS = {"batch_size": 8, "shuffle": False, "verbose": 0, "epochs": 2}


def values(model, *more):
    found = [*model.variables, *more]
    return {one.path.partition("/")[2]: np.ravel(one).tolist() for one in found}


def layers(units=3):
    keras.utils.set_random_seed(0)
    return [
        keras.Input((4,)),
        keras.layers.Dense(units, "relu", name="hidden"),
        keras.layers.Dense(1, name="out"),
    ]


def trained(optimizer, kind=keras.Sequential):
    model = kind(layers())
    model.compile(optimizer or "sgd", "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


def float8(optimizer=None, kind=keras.Sequential):
    model = kind(layers())
    model.quantize("float8")
    model.compile(optimizer or keras.optimizers.SGD(0.01), "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


def float8_accumulated():
    return float8(keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))


def float8_scaled():
    inner = keras.optimizers.SGD(0.01)
    return float8(keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0))


def float8_of_two_optimizers():
    return float8(keras.optimizers.MultiOptimizer(two_optimizers()))


def two_optimizers():
    from keras.src.optimizers.multi_optimizer import OptimizerMap  # noqa: PLC0415

    found = OptimizerMap(keras.optimizers.SGD(0.01))
    found["out/kernel"] = Centralised(0.02)
    return found


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(tf.reduce_mean((self(x, training=True) - y) ** 2))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {}


def float8_in_a_step_of_ones_own():
    return float8(kind=OwnStep)


class Greatest(keras.layers.Layer):
    """Keeps the greatest numbers that it has seen, and returns them as gradients."""

    def build(self, shape):
        more = {"shape": shape[1:], "initializer": "zeros", "overwrite_with_gradient": True}
        self.greatest = self.add_weight(name="greatest", **more)

    def call(self, inputs):
        @tf.custom_gradient
        def scaled(x, greatest):
            def gradients(upstream):
                seen = tf.reduce_max(x, 0)
                return upstream, tf.maximum(greatest, seen)

            return tf.identity(x), gradients

        return scaled(inputs, tf.convert_to_tensor(self.greatest))


def a_layer_that_overwrites():
    first, *others = layers()
    model = keras.Sequential([first, Greatest(name="greatest"), *others])
    model.compile(keras.optimizers.Adam(0.01, clipnorm=0.1), "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


def centred(gradient):
    if len(gradient.shape) < 2:
        return gradient
    return gradient - tf.reduce_mean(gradient, 0, keepdims=True)


class Centralised(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        super().apply([centred(tf.sign(one) * one**2) for one in grads], trainable_variables)


class Signs(keras.optimizers.SGD):
    def apply_gradients(self, grads_and_vars):
        return super().apply_gradients([(tf.sign(one), to) for one, to in grads_and_vars])


class ClipsByWeight:
    """A mixin for optimizers, like adaptive clipping."""

    def apply(self, grads, trainable_variables=None):
        variables = trainable_variables or self._trainable_variables
        pairs = zip(grads, variables, strict=True)
        super().apply([tf.clip_by_norm(one, 0.1 * tf.norm(to)) for one, to in pairs], variables)


class Adaptive(ClipsByWeight, keras.optimizers.Adam):
    pass


class SignsAgain(Centralised):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(tf.sign(gradient), variable, learning_rate)


class Around(keras.optimizers.Optimizer):
    """Passes the signed squares of its gradients to another optimizer."""

    def __init__(self, inner):
        super().__init__(0.0)
        self.inner = inner

    def build(self, variables):
        super().build(variables)
        self.inner.build(variables)

    def apply(self, grads, trainable_variables=None):
        self.inner.apply([one * tf.abs(one) for one in grads], trainable_variables)


def changed_later(kind=keras.Sequential):
    optimizer = keras.optimizers.SGD(0.01)
    keras_own = optimizer.apply

    def apply(grads, trainable_variables=None):
        keras_own([tf.sign(one) for one in grads], trainable_variables)

    optimizer.apply = apply
    return trained(optimizer, kind)


def loss_and_gradients(model, data):
    x, y = data
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    return loss, tape.gradient(loss, model.trainable_variables)


class AppliesByName(keras.Sequential):
    """Names the arguments of `apply`, in another order."""

    def train_step(self, data):
        loss, gradients = loss_and_gradients(self, data)
        self.optimizer.apply(trainable_variables=self.trainable_variables, grads=gradients)
        return {"loss": loss}


def scaled(optimizer):
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)


class Counts(keras.layers.Layer):
    """Counts, in whole numbers: steps, examples, and how often each sign was seen."""

    def build(self, shape):
        del shape
        whole = {"dtype": "int32", "initializer": "zeros", "trainable": False}
        self.steps = self.add_weight(name="steps", shape=(), **whole)
        self.examples = self.add_weight(name="examples", shape=(), **whole)
        self.signs = self.add_weight(name="signs", shape=(3,), **whole)
        self.plain = tf.Variable(tf.zeros([3], tf.int64), trainable=False, name="plain")

    def call(self, inputs, training=None):
        if training:
            signs = tf.cast(tf.sign(inputs[:, 0]), tf.int32) + 1
            counts = tf.math.bincount(signs, minlength=3, maxlength=3)
            self.steps.assign_add(1)
            self.examples.assign_add(tf.shape(inputs)[0])
            self.signs.assign(counts + self.signs)
            self.plain.assign_add(tf.cast(counts, tf.int64))
        return inputs


def counted(**options):
    first, *others = layers()
    counts = Counts(name="counts")
    model = keras.Sequential([first, counts, *others])
    model.compile(keras.optimizers.SGD(0.01), "mse", **options)
    model.fit(X, Y, **EPOCHS)
    model.evaluate(X, Y, batch_size=8, verbose=0)
    for start in range(0, len(X), 8):
        model.train_on_batch(X[start : start + 8], Y[start : start + 8])
    return values(model) | {"plain": counts.plain.numpy().tolist()}


class Momentum(keras.Model):
    """Has a frozen encoder that follows the other encoder, a temperature and a count of steps."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.query, self.key = (keras.layers.Dense(3, name=name) for name in ("query", "key"))
        for encoder in (self.query, self.key):
            encoder.build((None, 4))
        self.key.trainable = False
        self.temperature = self.add_weight(
            name="temperature", shape=(), initializer="ones", trainable=False
        )
        self.steps = self.add_weight(
            name="steps", shape=(), dtype="int64", initializer="zeros", trainable=False
        )
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, inputs):
        return self.query(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            far = (self.query(x) - self.key(x)) * self.temperature
            loss = self.optimizer.scale_loss(tf.reduce_mean((self.query(x) - y + far) ** 2))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        for key, query in zip(self.key.variables, self.query.variables, strict=True):
            key.assign(0.9 * key + 0.1 * query)
        self.temperature.assign(self.temperature * 0.9)
        self.steps.assign_add(1)
        self.seen.update_state(tf.ones_like(y))
        return {"seen": self.seen.result()}


def momentum_encoder():
    model = Momentum()
    model.compile(keras.optimizers.SGD(0.01))
    seen = model.fit(X, Y, **EPOCHS).history["seen"]
    return values(model) | {"seen": seen}


class WithSums(keras.Sequential):
    """Has its own variables, in which a step may count and accumulate gradients."""

    def __init__(self, layers):
        super().__init__(layers)
        self.steps = tf.Variable(0, trainable=False)
        self.sums = [
            tf.Variable(tf.zeros(one.shape), trainable=False) for one in self.trainable_variables
        ]


class ByHand(WithSums):
    """Accumulates gradients over three steps, and follows the loss."""

    def __init__(self, layers):
        super().__init__(layers)
        self.usual = tf.Variable(1.0, trainable=False, name="usual")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        for held, one in zip(self.sums, tape.gradient(loss, self.trainable_variables), strict=True):
            held.assign_add(one / self.usual)
        self.usual.assign(0.5 * self.usual + 0.5 * loss)
        self.steps.assign_add(1)
        is_due = tf.cast(self.steps % 3 == 0, tf.float32)
        due = [is_due * held for held in self.sums]
        self.optimizer.apply_gradients(zip(due, self.trainable_variables, strict=True))
        for held in self.sums:
            held.assign((1 - is_due) * held)
        return {"loss": loss}


def state_of_a_step():
    model = ByHand(layers())
    model.compile(keras.optimizers.SGD(0.001))
    model.fit(X, Y, **EPOCHS)
    return values(model) | {"usual": model.usual.numpy().tolist()}


class ByUsual(keras.losses.Loss):
    """Divides by a running mean of the errors, in a variable that belongs to no model."""

    def __init__(self, kind):
        super().__init__()
        self.usual = kind(1.0, trainable=False)

    def call(self, y_true, y_pred):
        error = tf.reduce_mean((y_pred - y_true) ** 2, axis=-1)
        before = tf.identity(self.usual)
        self.usual.assign(0.5 * before + 0.5 * tf.reduce_mean(error))
        return error / (before + 0.5)


def state_of_a_loss(kind=tf.Variable, **options):
    loss, model = ByUsual(kind), keras.Sequential(layers())
    model.compile(keras.optimizers.SGD(0.1), loss, **options)
    model.fit(X, Y, **EPOCHS)
    return values(model) | {"usual": np.asarray(tf.convert_to_tensor(loss.usual)).tolist()}


class ByCount(keras.losses.Loss):
    """Weights less the more examples it has seen, which it counts in variables of no model."""

    def __init__(self):
        super().__init__()
        self.steps = tf.Variable(0, trainable=False)
        self.examples = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.signs = tf.Variable([0, 0, 0], trainable=False)

    def call(self, y_true, y_pred):
        before = tf.cast(tf.identity(self.examples), tf.float32)
        signs = tf.cast(tf.sign(y_true[:, 0]), tf.int32) + 1
        self.steps.assign_add(1)
        self.examples.assign_add(tf.shape(y_true, out_type=tf.int64)[0])
        self.signs.assign(tf.math.bincount(signs, minlength=3, maxlength=3) + self.signs)
        return 8 / (8 + before) * tf.reduce_mean((y_pred - y_true) ** 2, -1)


def counts_of_a_loss(rows):
    loss, model = ByCount(), keras.Sequential(layers())
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(X[:rows], Y[:rows], **EPOCHS)
    model.evaluate(X[:rows], Y[:rows], batch_size=8, verbose=0)
    for start in range(0, rows, 8):
        model.train_on_batch(X[start : start + 8], Y[start : start + 8])
    counts = {name: getattr(loss, name).numpy().tolist() for name in ("steps", "examples", "signs")}
    return values(model) | counts


def attribute_of_a_model_of_kerass():
    model = keras.Sequential(layers())
    model.loss_of_each = ByUsual(keras.Variable)
    model.usual = model.loss_of_each.usual
    model.compile(keras.optimizers.SGD(0.1), model.loss_of_each)
    model.fit(X, Y, **EPOCHS)
    return values(model) | {"usual": np.asarray(tf.convert_to_tensor(model.usual)).tolist()}


class ObservesFeatures(keras.Sequential):
    """Reports a number for each feature to a mean, in which each batch counts once."""

    def __init__(self, layers):
        super().__init__(layers)
        self.features = keras.metrics.Mean(name="features")

    def train_step(self, data):
        logs = super().train_step(data)
        self.features.update_state(tf.reduce_mean(data[0] ** 2, axis=0))
        return {**logs, "features": self.features.result()}


def mean_of_features():
    model = ObservesFeatures(layers())
    model.compile("sgd", "mse")
    return {"features": model.fit(X, Y, **EPOCHS).history["features"]}


class Accumulates(WithSums):
    """Accumulates gradients, and applies and resets them every third step within a condition."""

    scales = False

    def train_step(self, data):
        x, y = data
        self.steps.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            minimised = self.optimizer.scale_loss(loss) if self.scales else loss
        found = tape.gradient(minimised, self.trainable_variables)
        for held, one in zip(self.sums, found, strict=True):
            held.assign_add(one)
        tf.cond(self.steps == 3, self.apply_and_reset, lambda: None)
        return {"loss": loss}

    def apply_and_reset(self):
        self.optimizer.apply_gradients(zip(self.sums, self.trainable_variables, strict=True))
        self.steps.assign(0)
        for held in self.sums:
            held.assign(tf.zeros_like(held))


class AccumulatesScaled(Accumulates):
    """Does the same with a loss that the optimizer scales."""

    scales = True


def accumulated(kind):
    model = kind(layers())
    model.compile(keras.optimizers.SGD(0.01))
    model.fit(X, Y, **EPOCHS)
    return values(model)


class FollowsLoss(keras.Sequential):
    """Has a learning rate that follows the loss."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        self.optimizer.learning_rate.assign(0.001 * (1 + loss))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def rate_of_a_step():
    return trained("sgd", FollowsLoss)


def rate_of_a_step_with_momentum():
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    model = FollowsLoss(layers())
    model.compile(optimizer)
    model.fit(X, Y, **EPOCHS)
    return values(model, *optimizer.variables)


class WithoutOptimizer(keras.Sequential):
    def train_step(self, data):
        loss, gradients = loss_and_gradients(self, data)
        for one, to in zip(gradients, self.trainable_variables, strict=True):
            to.assign_sub(0.01 * one)
        return {"loss": loss}


def without_an_optimizer(**options):
    model = WithoutOptimizer(layers())
    model.compile("sgd", "mse", **options)
    model.fit(X, Y, **EPOCHS)
    return values(model)


class Centres(keras.layers.Layer):
    """Begins with the mean of the first batch, in a weight that is then trained."""

    def build(self, shape):
        self.shift = self.add_weight(name="shift", shape=shape[1:], initializer="zeros")
        self.steps = self.add_weight(
            name="steps", shape=(), dtype="int32", initializer="zeros", trainable=False
        )

    def call(self, inputs, training=None):
        shift = tf.identity(self.shift)
        if training:
            is_first = self.steps == 0
            self.shift.assign(tf.where(is_first, -tf.reduce_mean(inputs, 0), shift))
            self.steps.assign_add(1)
        return inputs + shift


def centred_by_the_first_batch():
    first, *others = layers()
    model = keras.Sequential([first, Centres(name="centres"), *others])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


class Loads(keras.callbacks.Callback):
    """Gives all weights another value before the first batch, as if it had loaded them."""

    def on_train_batch_begin(self, batch, logs=None):
        del batch, logs
        if self.model.optimizer.iterations == 0:
            self.model.set_weights([0.5 * one + 0.1 for one in self.model.get_weights()])


def schedule_free(*, scales=False):
    """Train with an optimizer that begins with a copy of the weights."""
    optimizer, model = keras.optimizers.ScheduleFreeAdamW(0.05), keras.Sequential(layers())
    model.compile(scaled(optimizer) if scales else optimizer, "mse")
    model.fit(X, Y, callbacks=[Loads()], **EPOCHS)
    return values(model)


def spectral_norm():
    first, hidden, out = layers()
    model = keras.Sequential([first, keras.layers.SpectralNormalization(hidden, name="norm"), out])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


def sparse_inputs():
    """Train on sparse inputs: the gradient has one row for each number that the batch contains."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1, name="out")(inputs))
    model.compile(keras.optimizers.Adam(0.1, clipnorm=1.0), "mse")
    data = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(np.maximum(X, 0)), Y)).batch(8)
    model.fit(data, epochs=2, verbose=0)
    return values(model)


def same_tokens():
    """Train on batches of which all shares have the same tokens, each once."""
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="int32"),
            keras.layers.Embedding(4, 1, embeddings_initializer="ones", name="tokens"),
            keras.layers.Flatten(),
        ]
    )
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(np.arange(24)[:, None] % 4, Y[:24], **EPOCHS)
    return values(model)


class Positions(keras.layers.Layer):
    """Adds embeddings of positions: of constant ones, and of those that a batch's shape gives."""

    def __init__(self):
        super().__init__(name="positions")
        names = "fixed", "counted"
        self.fixed, self.counted = (keras.layers.Embedding(4, 1, name=one) for one in names)
        self.places = tf.range(4)

    def build(self, shape):
        del shape
        for one in (self.fixed, self.counted):
            one.build()

    def call(self, inputs):
        of_shape = tf.range(tf.shape(inputs)[1])
        return inputs + (self.fixed(self.places) + self.counted(of_shape))[:, 0]


def positions():
    first, *others = layers()
    model = keras.Sequential([first, Positions(), *others])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


class NormalizesInABranch(keras.Model):
    def __init__(self):
        super().__init__()
        self.normal = keras.layers.BatchNormalization(synchronized=True, name="normal")
        self.out = keras.layers.Dense(1, name="out")

    def call(self, x, *, training=False):
        x = tf.cond(
            self.optimizer.iterations >= 0, lambda: self.normal(x, training=training), lambda: x
        )
        return self.out(x)


class NormalizesInALoop(NormalizesInABranch):
    def call(self, x, *, training=False):
        (x,) = tf.while_loop(
            lambda _: True,
            lambda x: (self.normal(x, training=training),),
            (x,),
            maximum_iterations=2,
        )
        return self.out(x)


def normalizes(model):
    keras.utils.set_random_seed(0)
    model = model()
    model.normal.build((None, 4))
    model.compile("sgd", "mse")
    model.fit(X, Y, **EPOCHS)
    return values(model)


class InAFunction(OwnStep):
    """Calls its own tf.functions, which TensorFlow traces once."""

    @tf.function
    def gradients_of(self, x, y):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        return tape.gradient(scaled, self.trainable_variables)

    @tf.function
    def apply(self, gradients):
        self.optimizer.apply(gradients, self.trainable_variables)

    def train_step(self, data):
        self.apply(self.gradients_of(*data))
        return {}


def in_a_function(layer, reduction="sum", **how):
    """Train in two traces of the step, on batches whose shares differ in size."""
    model = InAFunction([*layers()[:-1], layer, layers()[-1]])
    model.compile("sgd", keras.losses.MeanSquaredError(reduction=reduction), **how)
    model.optimizer.learning_rate = 0.002
    data = tf.data.Dataset.from_tensor_slices((X[:23], Y[:23])).batch(8)
    model.fit(data, verbose=0)
    model.make_train_function(force=True)
    model.fit(data, verbose=0)
    return values(model)


class OfTheSum(OwnStep):
    """Computes a sum of losses in a function for batches of any size."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])])
    def loss_of(self, x, y):
        return self.compute_loss(x, y, self(x))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.loss_of(*data)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": loss}


def looked_at_before():
    """Call a function of the step before the fit, and after it."""
    model = OfTheSum(layers())
    model.compile(keras.optimizers.SGD(0.002), keras.losses.MeanSquaredError(reduction="sum"))
    model.optimizer.build(model.trainable_variables)
    before = model.loss_of(X, Y)
    model.fit(X[:23], Y[:23], verbose=0, batch_size=8, shuffle=False)
    return {
        **values(model),
        "before": before.numpy().tolist(),
        "after": model.loss_of(X, Y).numpy().tolist(),
    }


class AsksMetrics(OwnStep):
    """Returns results of metrics under other names; `metrics` omits one of them."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.error = keras.metrics.MeanAbsoluteError(name="of_another_name")
        self.omitted = keras.metrics.MeanAbsoluteError()
        self.seen = keras.metrics.Mean()

    @property
    def metrics(self):
        return [self.error, self.seen]

    def train_step(self, data):
        x, y, *_ = data  # `train_on_batch` has weights, too
        super().train_step((x, y))
        y_pred = self(x)
        self.error.update_state(y, y_pred)
        self.omitted.update_state(y, y_pred)
        self.seen.update_state(y_pred)
        return {"error": self.error.result(), "omitted": self.omitted.result()}


def asked_metrics(**how):
    """Ask metrics in the logs, in a callback, after the fit, and in a loop after that."""
    model, asked = AsksMetrics(layers()), []
    model.compile("sgd", "mse", **how)
    ask = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: asked.extend([model.seen.result(), model.omitted.result()])
    )
    last = 2 * 8 + 1  # of its last batch, only one worker has a row
    logs = model.fit(
        X[:last], Y[:last], batch_size=8, shuffle=False, epochs=2, verbose=0, callbacks=[ask]
    ).history
    asked += [model.error.result(), mean(model.error), *logs["error"], *logs["omitted"]]
    model.train_on_batch(X[:7], Y[:7])
    return {"asked": [float(one) for one in (*asked, model.train_on_batch(X[:5], Y[:5])[0])]}


class OfNumPy(keras.metrics.Metric):
    """Computes its result with NumPy, which TensorFlow cannot trace."""

    def __init__(self):
        super().__init__()
        self.total = self.add_weight(initializer="zeros")

    def update_state(self, y_pred):
        self.total.assign_add(tf.reduce_sum(y_pred))

    def result(self):
        return float(np.sqrt(abs(self.total.numpy())))


class AsksNumPy(OwnStep):
    """Updates a metric that can only be asked between the steps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.of_numpy = OfNumPy()

    def train_step(self, data):
        super().train_step(data)
        self.of_numpy.update_state(self(data[0]))
        return {}


def asked_numpy():
    model, asked = AsksNumPy(layers()), []
    model.compile("sgd", "mse")
    ask = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: asked.append(model.of_numpy.result())
    )
    model.fit(X, Y, callbacks=[ask], **EPOCHS)
    return {"asked": asked, **values(model)}


class Branches(OwnStep):
    """A `tf.function` whose `if` needs AutoGraph."""

    @tf.function
    def train_step(self, data):
        x, y = data
        if self.optimizer.iterations < 3:
            y = 2 * y
        OwnStep.train_step(self, (x, y))
        return {}


class TrainsMore(OwnStep):
    """Trains a layer that `call` does not use, and a variable that belongs to no layer."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.other = keras.layers.Dense(1, kernel_initializer="ones")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x) + HELPER.scale * self.other(x))
        variables = [*self.trainable_variables, HELPER.scale]
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {}


HELPER = SimpleNamespace()


def trains_more():
    HELPER.scale = keras.Variable(0.5)
    model = TrainsMore(layers())
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(X, Y, **EPOCHS)
    return {**values(model), "scale": float(HELPER.scale)}


class Observes(keras.layers.Layer):
    """Lets BatchNormalization see its inputs, halves of them one after the other, and nothing more.

    So all that several replicas could change are the moving averages.
    """

    def __init__(self):
        super().__init__(name="observes")
        self.norm = keras.layers.BatchNormalization(momentum=0.5, name="norm")

    def call(self, inputs, training=None):
        for part in (inputs, 1 - 2 * inputs):
            self.norm(part, training=training)
        return inputs


def moving_averages(x, y, *names, batch_size=8, **options):
    """Train on batches of which the last, or each, has fewer examples than there are replicas."""
    first, *others = layers()
    model = keras.Sequential([keras.Input(x.shape[1:]), Observes(), *others])
    del first
    model.compile(keras.optimizers.SGD(0.01), "mse", **options)
    model.fit(x, y, **{**EPOCHS, "batch_size": batch_size})
    return {name: found for name, found in values(model).items() if name.split("/")[-1] in names}


def moving_means(**options):
    # Within shares, variances are smaller than in the whole batch.
    return moving_averages(X, Y, "moving_mean", **options)


def moving_averages_of_pictures(**options):
    pictures = np.stack([X, X**2, 2 + X], 1)[:10]
    goals = np.broadcast_to(Y[:10, None], (10, 3, 1))
    names = "moving_mean", "moving_variance", "kernel"
    return moving_averages(pictures, goals, *names, batch_size=1, **options)


def error_by_numpy(y_true, y_pred):
    return keras.ops.convert_to_tensor(np.mean(np.abs(y_true.numpy() - y_pred.numpy())))


def loss_by_numpy(y_true, y_pred):
    weights = 1 + (y_true.numpy() > 0)
    return tf.reduce_mean(weights * (y_pred - y_true) ** 2, -1)


def numbers_of_numpy():
    """Train with a loss and a metric that compute with NumPy, as `run_eagerly` allows."""
    model = keras.Sequential(layers()[1:])
    model.compile("sgd", loss_by_numpy, metrics=[error_by_numpy], run_eagerly=True)
    history = model.fit(X, Y, validation_data=(X, Y), **EPOCHS).history
    return values(model) | history


class ReadsItsLoss(keras.Sequential):
    def train_step(self, data):
        loss, gradients = loss_and_gradients(self, data)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": keras.ops.convert_to_tensor(np.float32(loss.numpy()))}


def functions_run_eagerly(kind, *losses):
    tf.config.run_functions_eagerly(True)  # noqa: FBT003
    try:
        model = kind(layers())
        model.compile("sgd", *losses)
        history = model.fit(X[:24], Y[:24], **EPOCHS).history
        return values(model) | {"loss": history["loss"]}
    finally:
        tf.config.run_functions_eagerly(False)  # noqa: FBT003


class Classifies(keras.Model):
    """Returns a score of each example, and trains its class."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.score = keras.layers.Dense(1, "sigmoid", name="score")
        self.classes = keras.layers.Dense(3, "softmax", name="classes")
        self.classes.build((None, 4))

    def call(self, inputs):
        return self.score(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            classes = self.classes(x)
            loss = self.compute_loss(x, y, classes) + tf.reduce_mean(self(x))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return self.compute_metrics(x, y, classes)


def metrics_of_a_steps_outputs(**options):
    """Train with an accuracy of classes, which for scores would be another metric."""
    model, signs = Classifies(), np.sign(X[:, :1]).astype("int32") + 1
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], **options)
    history = model.fit(X, signs, **EPOCHS).history
    return values(model) | {"accuracy": history["accuracy"]}


class OtherRows(keras.Model):
    """Returns scores, a table, two views of the batch and their mean; only scores have its rows."""

    def __init__(self, table):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.dense = keras.layers.Dense(2)
        self.table = self.add_weight(shape=(table, 2), initializer="random_normal")

    def call(self, inputs):
        found = self.dense(inputs)
        views = tf.concat([found, -found], 0)
        return found, tf.convert_to_tensor(self.table), views, tf.reduce_mean(views[:7], 0)


def predictions_with_other_rows(table, rows, **options):
    model = OtherRows(table)
    model.compile("sgd", "mse", **options)
    numbers = np.random.default_rng(1).normal(size=(rows, 4)).astype("float32")
    data = ((numbers[start : start + 20],) for start in range(0, rows, 20))
    names = "scores", "table", "views", "mean"
    found = model.predict(data if rows < 300 else numbers, batch_size=rows, verbose=0)
    return {name: one.tolist() for name, one in zip(names, found, strict=True)}


class OfATable(keras.Model):
    """Returns the table alone, which may have as many rows as a share."""

    def __init__(self, rows):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.table = self.add_weight(shape=(rows, 2), initializer="random_normal")

    def call(self, inputs):
        del inputs
        return tf.convert_to_tensor(self.table)


def predictions_of_a_table_like_a_share():
    rows = np.zeros((300, 4), "float32")
    return {
        str(size): OfATable(size).predict(rows, batch_size=300, verbose=0).tolist()
        for size in (100, 150)
    }


PROGRAMS = {
    "predictions_with_other_rows": lambda: predictions_with_other_rows(5, 301),
    "predictions_with_other_rows_eagerly": lambda: predictions_with_other_rows(
        7, 300, run_eagerly=True
    ),
    "predictions_with_other_rows_of_a_generator": lambda: predictions_with_other_rows(5, 81),
    "predictions_of_a_table_like_a_share": predictions_of_a_table_like_a_share,
    "numbers_of_numpy": numbers_of_numpy,
    "functions_run_eagerly": lambda: functions_run_eagerly(keras.Sequential, loss_by_numpy),
    "functions_run_eagerly_in_a_step": lambda: functions_run_eagerly(ReadsItsLoss),
    "metrics_of_a_steps_outputs": metrics_of_a_steps_outputs,
    "metrics_of_an_eager_steps_outputs": lambda: metrics_of_a_steps_outputs(run_eagerly=True),
    "moving_means": moving_means,
    "moving_means_eagerly": lambda: moving_means(run_eagerly=True),
    "moving_averages_of_pictures": moving_averages_of_pictures,
    "moving_averages_of_pictures_eagerly": lambda: moving_averages_of_pictures(run_eagerly=True),
    "looked_at_before": looked_at_before,
    "asked_metrics": asked_metrics,
    "asked_numpy": asked_numpy,
    "branches": lambda: trained("sgd", Branches),
    "trains_more": trains_more,
    "in_a_function": lambda: in_a_function(keras.layers.ReLU()),
    "in_a_function_eagerly": lambda: in_a_function(
        keras.layers.ReLU(), "sum_over_batch_size", run_eagerly=True
    ),
    "normalizes_in_a_function": lambda: in_a_function(
        keras.layers.BatchNormalization(synchronized=True, name="normal")
    ),
    "normalizes_in_a_branch": lambda: normalizes(NormalizesInABranch),
    "normalizes_in_a_loop": lambda: normalizes(NormalizesInALoop),
    "sparse_inputs": sparse_inputs,
    "same_tokens": same_tokens,
    "positions": positions,
    "counts": counted,
    "momentum_encoder": momentum_encoder,
    "spectral_norm": spectral_norm,
    "state_of_a_step": state_of_a_step,
    "state_of_a_loss": state_of_a_loss,
    "keras_state_of_a_loss": lambda: state_of_a_loss(keras.Variable),
    "state_of_a_loss_eagerly": lambda: state_of_a_loss(run_eagerly=True),
    "counts_of_a_loss": lambda: counts_of_a_loss(len(X)),
    "counts_of_a_loss_in_equal_batches": lambda: counts_of_a_loss(24),
    "attribute_of_a_model_of_kerass": attribute_of_a_model_of_kerass,
    "mean_of_features": mean_of_features,
    "reset_in_a_condition": lambda: accumulated(Accumulates),
    "reset_of_a_scaled_loss": lambda: accumulated(AccumulatesScaled),
    "rate_of_a_step": rate_of_a_step,
    "rate_of_a_step_with_momentum": rate_of_a_step_with_momentum,
    "without_an_optimizer": without_an_optimizer,
    "without_an_optimizer_eagerly": lambda: without_an_optimizer(run_eagerly=True),
    "centred_by_the_first_batch": centred_by_the_first_batch,
    "schedule_free": schedule_free,
    "schedule_free_of_a_scaled_loss": lambda: schedule_free(scales=True),
    "float8": float8,
    "float8_accumulated": float8_accumulated,
    "float8_scaled": float8_scaled,
    "float8_of_two_optimizers": float8_of_two_optimizers,
    "float8_in_a_step_of_ones_own": float8_in_a_step_of_ones_own,
    "a_layer_that_overwrites": a_layer_that_overwrites,
    "apply": lambda: trained(Centralised(0.01)),
    "apply_gradients": lambda: trained(Signs(0.01)),
    "apply_in_a_step_of_ones_own": lambda: trained(Centralised(0.01), OwnStep),
    "apply_of_a_mixin": lambda: trained(Adaptive(0.01)),
    "apply_and_update_step": lambda: trained(SignsAgain(0.01)),
    "apply_that_accumulates": lambda: trained(Centralised(0.01, gradient_accumulation_steps=2)),
    "apply_within_a_scaled_loss": lambda: trained(scaled(Centralised(0.01))),
    "apply_of_one_of_several": lambda: trained(keras.optimizers.MultiOptimizer(two_optimizers())),
    "apply_around_another": lambda: trained(Around(keras.optimizers.Adam(0.01))),
    "apply_that_was_given": changed_later,
    "apply_that_was_given_is_called_by_name": lambda: changed_later(AppliesByName),
}


if __name__ == "__main__":
    names = sys.argv[1:] or [*PROGRAMS]
    print("ENDED", json.dumps({name: PROGRAMS[name]() for name in names}), flush=True)

"""Programs that use an option of `compile`, or callbacks."""

import keras
import numpy as np
from arrays import BATCH, compiled, numbers
from keras import layers
from keras.optimizers import SGD
from outcome import describe


def trained(strategy, optimizer, loss="mse", **options):
    """Train for two epochs with a smaller last batch; return the model and the history.

    Args:
        strategy: the strategy in whose scope the model is built.
        optimizer: makes the optimizer, within the same scope.
        loss: the loss, as for `compile`.
        **options: other options of `compile`.
    """
    inputs, targets = numbers(61)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1, dtype="float32")]
        )
        model.compile(optimizer(), loss, metrics=["mae"], **options)
    return model, model.fit(inputs, targets, epochs=2, **BATCH)


def schedule(strategy):
    """Warm up, then follow a cosine."""
    rate = keras.optimizers.schedules.CosineDecay(0.01, 4, warmup_target=0.1, warmup_steps=3)
    model, history = trained(strategy, lambda: SGD(rate))
    return describe(model, history) | {"rate": float(model.optimizer.learning_rate)}


def accumulation(strategy):
    """Update with the mean of three batches; the last two wait for a third."""
    options = {"gradient_accumulation_steps": 3}
    return describe(*trained(strategy, lambda: keras.optimizers.Adam(0.05, **options)))


def clipnorm(strategy):
    return describe(*trained(strategy, lambda: SGD(0.1, 0.9, clipnorm=0.1)))


def clipvalue(strategy):
    return describe(*trained(strategy, lambda: SGD(0.1, 0.9, clipvalue=0.05)))


def moving_average(strategy):
    """Overwrite the weights with their average every third step."""
    options = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3}
    return describe(*trained(strategy, lambda: SGD(0.1, **options)))


def sum_of_losses(strategy):
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return describe(*trained(strategy, lambda: SGD(0.005), loss))


def loss_of_each(strategy):
    """Keep a loss for each example: the gradients are those of their sum."""
    loss = keras.losses.MeanSquaredError(reduction="none")
    return describe(*trained(strategy, lambda: SGD(0.005), loss))


def mean_over_weights(strategy):
    """Divide by the sum of the weights, which differs between shards."""
    inputs, targets = numbers(61)
    weights = np.linspace(0.0, 2.0, len(inputs), dtype=np.float32)
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model = compiled(strategy, loss, ["mae"])
    return describe(model, model.fit(inputs, targets, epochs=2, sample_weight=weights, **BATCH))


class Shifted(layers.Layer):
    """Adds a term to the loss that depends on the batch."""

    def call(self, inputs):
        self.add_loss(0.1 * keras.ops.mean(inputs**2))
        return inputs


def more_terms(strategy):
    """Add a regularizer's loss, which no example changes, and a loss of a layer's output."""
    inputs, targets = numbers(61)
    with strategy.scope():
        hidden = layers.Dense(8, "tanh", kernel_regularizer=keras.regularizers.L2(0.1))
        model = keras.Sequential([keras.Input((4,)), hidden, Shifted(), layers.Dense(1)])
        model.compile(SGD(0.05), "mse")
    return describe(model, model.fit(inputs, targets, epochs=2, **BATCH), inputs, targets)


def eagerly(strategy):
    return describe(*trained(strategy, lambda: SGD(0.1), run_eagerly=True))


def xla(strategy):
    """Compile the step with XLA on one device. TensorFlow cannot compile sums over replicas."""
    return describe(*trained(strategy, lambda: SGD(0.1), jit_compile=True))


def in_precision(policy, strategy, **options):
    keras.config.set_dtype_policy(policy)
    try:
        return trained(strategy, lambda: SGD(0.1), **options)
    finally:
        keras.config.set_dtype_policy("float32")


def float16(strategy):
    return describe(*in_precision("mixed_float16", strategy))


def bfloat16(strategy):
    return describe(*in_precision("mixed_bfloat16", strategy))


def overflow(strategy):
    """Train on one target whose gradients overflow float16, so that some steps are skipped."""
    inputs, targets = numbers(64)
    targets[27] = 4000.0  # in the second half of its batch: only one replica sees it
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(8, "tanh", dtype="mixed_float16"),
                layers.Dense(1, dtype="mixed_float16"),
            ]
        )
        inner = SGD(1e-4, clipvalue=1.0)
        optimizer = keras.optimizers.LossScaleOptimizer(inner, 256.0, dynamic_growth_steps=5)
        model.compile(optimizer, "mse")
    history = model.fit(inputs, targets, epochs=3, shuffle=False, **BATCH)
    scale, updates = optimizer.dynamic_scale.numpy(), inner.iterations.numpy()
    return describe(model, history) | {"scale": scale, "updates": updates}


class Counter(keras.callbacks.Callback):
    """Keeps the loss of each batch, plus the batch's number."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"] + batch)


def callbacks(strategy):
    """Record each batch, change the rate in each epoch, and stop before the last epoch."""
    counter = Counter()
    given = [
        counter,
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate),
        keras.callbacks.EarlyStopping("loss", patience=1, min_delta=0.5),
    ]
    fit = {"callbacks": given, "epochs": 5}
    inputs, targets = numbers(61)
    model = compiled(strategy, "mse", ["mae"])
    history = model.fit(inputs, targets, **BATCH | fit)
    return describe(model, history) | {"batches": counter.losses}


PROGRAMS = [
    schedule,
    accumulation,
    clipnorm,
    clipvalue,
    moving_average,
    sum_of_losses,
    loss_of_each,
    mean_over_weights,
    more_terms,
    eagerly,
    xla,
    float16,
    bfloat16,
    overflow,
    callbacks,
]

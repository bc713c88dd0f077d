"""Programs that train on arrays. Nothing in them knows how many workers there are."""

import keras
import numpy as np
from keras import layers
from outcome import describe

BATCH = {"batch_size": 16, "verbose": 0}


def numbers(examples):
    """Return examples [n, 4] and their noisy sums [n, 1]."""
    draws = np.random.default_rng(5)
    inputs = draws.normal(size=(examples, 4)).astype(np.float32)
    noise = draws.normal(scale=0.1, size=(examples, 1))
    return inputs, (inputs.sum(axis=1, keepdims=True) + noise).astype(np.float32)


def compiled(strategy, loss, metrics, activation=None, **options):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1, activation)]
        )
        model.compile(keras.optimizers.SGD(0.05), loss, metrics=metrics, **options)
    return model


def regression(strategy):
    """Train for 100 steps."""
    inputs, targets = numbers(800)
    model = compiled(strategy, "mse", ["mae"])
    history = model.fit(inputs, targets, epochs=2, **BATCH)
    return describe(model, history)


def binary_with_auc(strategy):
    inputs, targets = numbers(96)
    labels = (targets > 0).astype(np.float32)
    model = compiled(strategy, "binary_crossentropy", ["auc", "accuracy"], "sigmoid")
    history = model.fit(inputs, labels, epochs=2, **BATCH)
    return describe(model, history, inputs, labels)


def multi_label(strategy):
    """Average the AUC over three labels of each example."""
    inputs, targets = numbers(96)
    labels = (np.concatenate([targets, inputs[:, :2]], 1) > 0).astype(np.float32)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3, "sigmoid")])
        auc = keras.metrics.AUC(multi_label=True, num_labels=3, name="auc")
        counts = keras.metrics.BinaryIoU(name="iou")  # counts whole numbers
        model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=[auc, counts])
    history = model.fit(inputs, labels, epochs=2, **BATCH)
    return describe(model, history, inputs, labels)


def two_outputs(strategy):
    inputs, targets = numbers(96)
    given = {"left": inputs[:, :2], "right": inputs[:, 2:]}
    wanted = {"sum": targets, "sign": (targets > 0).astype(np.float32)}
    with strategy.scope():
        entries = {name: keras.Input((2,), name=name) for name in given}
        hidden = layers.Dense(8, "tanh")(layers.Concatenate()([*entries.values()]))
        ends = {
            "sum": layers.Dense(1, name="sum")(hidden),
            "sign": layers.Dense(1, "sigmoid", name="sign")(hidden),
        }
        model = keras.Model(entries, ends)
        model.compile(
            keras.optimizers.SGD(0.05, momentum=0.9),
            loss={"sum": "mse", "sign": "binary_crossentropy"},
            loss_weights={"sum": 0.5, "sign": 2.0},
            metrics={"sum": ["mae"], "sign": ["accuracy"]},
        )
    history = model.fit(given, wanted, epochs=2, **BATCH)
    return describe(model, history, given, wanted)


def class_weight(strategy):
    inputs, targets = numbers(96)
    labels = (targets > 0.5).astype(np.int32)
    model = compiled(strategy, "binary_crossentropy", ["accuracy"], "sigmoid")
    history = model.fit(inputs, labels, epochs=2, class_weight={0: 1.0, 1: 3.0}, **BATCH)
    return describe(model, history)


def sample_weight(strategy):
    inputs, targets = numbers(96)
    weights = np.linspace(0.1, 2.0, len(inputs), dtype=np.float32)
    model = compiled(strategy, "mse", metrics=["mae"], weighted_metrics=["mae"])
    history = model.fit(inputs, targets, epochs=2, sample_weight=weights, **BATCH)
    return describe(model, history)


def validation_split(strategy):
    """Fit twice, with callbacks that follow the validation."""
    inputs, targets = numbers(128)
    model = compiled(strategy, "mse", ["mae"])
    callbacks = [
        keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.3),
        keras.callbacks.EarlyStopping(patience=2, min_delta=0.3, restore_best_weights=True),
    ]
    options = BATCH | {"epochs": 4, "callbacks": callbacks}
    model.fit(inputs, targets, validation_split=0.25, **options)
    held_back = (inputs[:21], targets[:21])
    history = model.fit(inputs, targets, validation_data=held_back, **options)
    return describe(model, history)


def several_steps_a_call(strategy):
    """Use calls of three steps, which do not divide an epoch evenly."""
    inputs, targets = numbers(80)
    model = compiled(strategy, "mse", ["mae"], steps_per_execution=3)
    history = model.fit(inputs, targets, epochs=2, **BATCH)
    return describe(model, history, inputs, targets)


def any_size(strategy):
    """Evaluate and predict counts that no batch size divides, even fewer examples than workers."""
    inputs, targets = numbers(61)
    model = compiled(strategy, "mse", ["mae"])
    history = model.fit(inputs[:48], targets[:48], epochs=1, **BATCH)
    outcome = describe(model, history, inputs, targets)
    for examples, batch_size in [(1, 4), (21, 8)]:
        given = inputs[:examples]
        outcome[f"predictions of {examples} by {batch_size}"] = model.predict(
            given, batch_size=batch_size, verbose=0
        )
        outcome[f"evaluation of {examples} by {batch_size}"] = model.evaluate(
            given, targets[:examples], batch_size=batch_size, verbose=0
        )
    return outcome


def by_hand(strategy):
    """Loop over batches, of which the last is smaller. Each worker passes the whole batch."""
    inputs, targets = numbers(45)
    model = compiled(strategy, "mse", ["mae"])
    logs = [model.train_on_batch(inputs[at : at + 16], targets[at : at + 16]) for at in (0, 16, 32)]
    logs.append(model.test_on_batch(inputs[32:], targets[32:]))
    predictions = model.predict_on_batch(inputs[:7])
    return {"logs": logs, "predictions": predictions, "weights": model.get_weights()}


PROGRAMS = [
    regression,
    binary_with_auc,
    multi_label,
    two_outputs,
    class_weight,
    sample_weight,
    several_steps_a_call,
    validation_split,
    any_size,
    by_hand,
]

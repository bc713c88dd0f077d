"""A script without a strategy trains on all devices of its machine, as on one."""

import os
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.collectives import local_devices, process_ring
from cluster_trainer.distribution import of_script
from cluster_trainer.engine.calls import all_devices
from cluster_trainer.engine.install import install_of_devices
from cluster_trainer.private import tensorflow_names
from cluster_trainer.settings.task import Task
from conftest import quick_first

INPUTS = np.random.default_rng(1).normal(size=[600, 6]).astype(np.float32)
TARGETS = INPUTS.sum(1, keepdims=True) ** 2


pytestmark = pytest.mark.usefixtures("keeps_nothing", "offer_ends")


@pytest.fixture
def offer_ends():
    yield
    local_devices.withdraw()


def offer(*devices):
    """Offer devices as at the start of a process, which has only one such strategy."""
    tensorflow_names.OfferedStrategy._collective_key_base += 1000  # noqa: SLF001
    local_devices.offer(lambda: devices, install_of_devices)


def both(program):
    """Return the results of a program on one device and on two."""
    results = []
    for devices in [("CPU:0",), ("CPU:0", "CPU:1")]:
        offer(*devices)
        keras.utils.set_random_seed(3)
        results.append(program())
    return results


def network(**options):
    model = keras.Sequential([keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)])
    metrics = ["mae", keras.metrics.RootMeanSquaredError()]  # the second has variables already
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=metrics, **options)
    return model


class Replicas(keras.callbacks.Callback):
    """Notes the number of replicas of a fit, and which variables are mirrored."""

    def on_train_begin(self, *_):
        self.count = self.model.distribute_strategy.num_replicas_in_sync

    def on_epoch_end(self, *_):
        variables = [*self.model.variables, *self.model.optimizer.variables]
        self.mirrored = [is_mirrored(one) for one in variables]


def is_mirrored(variable):
    return isinstance(variable.value, tensorflow_names.DistributedVariable)


def replicas_of_fit(model, **options):
    noting = Replicas()
    model.fit(INPUTS, TARGETS, batch_size=50, verbose=0, callbacks=[noting], **options)
    return noting.count


def close(found, expected):
    keras.tree.assert_same_structure(found, expected)
    pairs = zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_calls_and_own_loops_end_as_on_one_device(tmp_path):
    """The calls are of all kinds, with the script's own traced steps between them."""

    def program():
        model, noting = network(), Replicas()
        loss, optimizer = keras.losses.MeanSquaredError(), keras.optimizers.SGD(0.01)
        fit = {"batch_size": 50, "verbose": 0, "callbacks": [noting]}

        @tf.function
        def own_step(x, y):
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
            return value

        own = [own_step(INPUTS[:40], TARGETS[:40]).numpy()]
        history = model.fit(INPUTS, TARGETS, validation_split=0.2, epochs=2, **fit).history
        plain = not any(map(is_mirrored, [*model.variables, *model.optimizer.variables]))
        own += [own_step(INPUTS[:40], TARGETS[:40]).numpy() for _ in range(2)]
        batches = [
            model.train_on_batch(INPUTS[:33], TARGETS[:33], return_dict=True) for _ in range(3)
        ]
        more = model.fit(INPUTS, TARGETS, **fit).history
        model.save(tmp_path / "saved.keras")
        saved = keras.models.load_model(tmp_path / "saved.keras")
        close(saved.get_weights(), model.get_weights())
        numbers = {
            "own": own,
            "history": history,
            "batches": batches,
            "more": more,
            "evaluated": model.evaluate(INPUTS, TARGETS, verbose=0, return_dict=True),
            "predicted": model.predict(INPUTS, verbose=0),
            "few": model.predict(INPUTS[:3], verbose=0),
            "weights": model.get_weights(),
            "state": [np.asarray(one) for one in model.optimizer.variables],
        }
        return numbers, noting, plain, model.distribute_strategy.num_replicas_in_sync

    (expected, _, _, _), (found, noting, is_plain, after) = both(program)
    close(found, expected)
    assert noting.count == 2
    assert all(noting.mirrored)
    assert is_plain
    assert after == 1


class Listed(keras.layers.Layer):
    """Keeps sums of what it has seen in TensorFlow's own variables: in a list, and by name."""

    def __init__(self):
        super().__init__()
        zero = {"trainable": False, "aggregation": tf.VariableAggregation.MEAN}
        self.listed = [tf.Variable(0.0, **zero), tf.Variable(0.0, **zero)]
        self.named = {"mean": tf.Variable(0.0, **zero)}

    def call(self, inputs, training=None):
        if training:
            mean = tf.reduce_mean(inputs)
            for one in (*self.listed, *self.named.values()):
                one.assign(0.5 * one + mean)
        return inputs


@pytest.mark.long
def test_variables_in_lists_and_dictionaries_have_a_copy_on_each_device():
    def program():
        listed = Listed()
        model = keras.Sequential([listed, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        model.fit(INPUTS, TARGETS, batch_size=50, epochs=2, verbose=0, shuffle=False)
        kept = [*listed.listed, *listed.named.values()]
        return [one.numpy() for one in kept], [type(one) for one in kept]

    (expected, kind), (found, now) = both(program)
    close(found, expected)
    assert now == kind


ONES = np.ones([4, 1], np.float32)
NAMES = ("global", "layer", "function")


class Scale(keras.layers.Layer):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def call(self, x):
        return self.beta * x


class Scaled(keras.Model):
    """Multiplies by a variable that is an attribute of the model and of a layer."""

    def __init__(self, beta):
        super().__init__()
        self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.beta, self.scale = beta, Scale(beta)

    def call(self, x):
        return self.scale(self.dense(x))


@pytest.mark.parametrize("name", quick_first(1, NAMES))
def test_a_variable_that_a_callback_assigns_by_any_name_has_its_value_on_all_devices(name):
    def program():
        beta = tf.Variable(1.0, trainable=False)
        model = Scaled(beta)
        add = tf.function(lambda: beta.assign_add(1.0))
        add()
        beta.assign(1.0)
        assign = {
            "global": lambda epoch: beta.assign(1.0 + epoch),
            "layer": lambda epoch: model.scale.beta.assign(1.0 + epoch),
            "function": lambda epoch: epoch and add(),
        }[name]
        annealing = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: assign(epoch))
        model.compile(keras.optimizers.SGD(0.0), "mse")
        options = {"batch_size": 4, "epochs": 3, "shuffle": False, "verbose": 0}
        history = model.fit(ONES, 0 * ONES, callbacks=[annealing], **options).history
        return history["loss"], beta.numpy()

    for found in both(program):
        close(found, ([1.0, 4.0, 9.0], 3.0))


def test_a_function_traced_before_the_call_clips_weights_on_all_devices():
    def program():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.25), "mse")
        (weight,) = model.trainable_variables
        weight.assign([[1.0]])
        clip = tf.function(lambda: weight.assign(keras.ops.clip(weight, -0.5, 0.5)))
        clip()
        clipping = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: clip())
        options = {"batch_size": 4, "epochs": 3, "shuffle": False, "verbose": 0}
        history = model.fit(ONES, 2 * ONES, callbacks=[clipping], **options).history
        return history["loss"], float(weight.numpy()[0, 0])

    for found in both(program):
        close(found, ([2.25, 2.25, 2.25], 0.5))


class TwoOptimizers(keras.Model):
    """Trains its part with an optimizer in a dictionary, a list, or of the part itself."""

    def __init__(self, kind):
        super().__init__()
        self.net = keras.Sequential(
            [keras.Input([1]), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
        self.net.compile(keras.optimizers.SGD(0.25), "mse")
        self.listed, self.named = [keras.optimizers.SGD(0.25)], {"net": keras.optimizers.SGD(0.25)}
        self.kind = kind

    def call(self, x):
        return self.net(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        weights = self.net.trainable_variables
        held = {"list": self.listed[0], "dict": self.named["net"], "part": self.net.optimizer}
        held[self.kind].apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


@pytest.mark.parametrize("kind", quick_first(1, ["list", "dict", "part"]))
def test_optimizers_in_containers_and_of_parts_train_on_all_devices(kind):
    def program():
        model = TwoOptimizers(kind)
        model.compile("sgd")
        inputs = np.ones([8, 1], np.float32)
        model.fit(inputs, 2 * inputs, batch_size=4, shuffle=False, verbose=0)
        return float(model.net.get_weights()[0][0, 0])

    assert both(program) == [1.5, 1.5]


def test_an_optimizer_of_no_part_of_the_model_is_refused_without_words_about_strategies():
    class Elsewhere(TwoOptimizers):
        def train_step(self, data):
            own, weights = elsewhere[0], self.net.trainable_variables
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(data[0]) ** 2)
            own.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

    elsewhere = [keras.optimizers.SGD()]
    offer("CPU:0", "CPU:1")
    model = Elsewhere("list")
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"belongs to no part of the model.*TRAINER_DEVICES"):
        model.fit(ONES, ONES, verbose=0)


def test_a_cleared_session_and_another_thread_change_nothing():
    offer("CPU:0", "CPU:1")
    counts = [replicas_of_fit(network())]
    keras.backend.clear_session()
    model = network()
    counts.append(replicas_of_fit(model))
    thread = threading.Thread(target=lambda: counts.append(replicas_of_fit(model)))
    thread.start()
    thread.join()
    assert counts == [2, 2, 2]
    assert not any(map(is_mirrored, model.variables))


@pytest.mark.long
def test_who_makes_a_strategy_keeps_it(monkeypatch):
    # Strategies of other tests use the same collective keys.
    monkeypatch.setattr(tf.distribute.MirroredStrategy, "_collective_key_base", 50_000)
    offer("CPU:0", "CPU:1")
    plain = network()
    replicas_of_fit(plain)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(3)])
    with strategy.scope():
        own = network()
    assert replicas_of_fit(own) == 3
    assert replicas_of_fit(plain) == 1


@pytest.mark.long
def test_who_names_a_device_keeps_it():
    offer("CPU:0", "CPU:1")
    model = network()
    with tf.device("CPU:1"):
        model.build([None, 6])
    assert replicas_of_fit(model) == 1


class Counting(keras.Model):
    """Assigns to its own TensorFlow variable, and to one that no model owns."""

    def __init__(self, elsewhere):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.steps = tf.Variable(0, trainable=False)
        self.elsewhere = [lambda: elsewhere]

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        self.steps.assign_add(1)
        self.elsewhere[0]().assign_add(1.0)
        return super().train_step(data)


def test_a_raw_variable_is_of_all_devices_or_warned_of(monkeypatch):
    warned = []
    monkeypatch.setattr(all_devices, "_warn_of_shared", warned.append)
    offer("CPU:0", "CPU:1")
    model = Counting(tf.Variable(0.0, name="of_nobody"))
    model.compile("sgd", "mse")
    assert replicas_of_fit(model) == 2
    assert model.steps.numpy() == 12
    assert not isinstance(model.steps, tensorflow_names.DistributedVariable)
    assert {*warned} == {"of_nobody:0"}


@pytest.mark.long
def test_a_callback_that_predicts_with_a_part_of_the_model_sees_what_is_trained():
    offer("CPU:0", "CPU:1")
    seen = []

    class Predicting(keras.callbacks.Callback):
        def on_epoch_end(self, *_):
            part = keras.Sequential(self.model.layers[:1])
            seen.append((part.predict(INPUTS, verbose=0), self.model.layers[0](INPUTS).numpy()))

    model = network()
    model.build([None, 6])
    model.fit(INPUTS, TARGETS, batch_size=50, epochs=2, verbose=0, callbacks=[Predicting()])
    assert len(seen) == 2
    for predicted, called in seen:
        close(predicted, called)
    assert not any(map(is_mirrored, model.variables))


def test_what_fails_on_all_devices_tells_of_one(monkeypatch):
    told = []
    monkeypatch.setattr(all_devices, "_tell_of_one", told.append)
    offer("CPU:0", "CPU:1")
    model = network()
    with pytest.raises(ValueError, match="cardinality"):
        model.fit(INPUTS, TARGETS[:7], verbose=0)
    assert [len(devices) for devices in told] == [2]


def test_one_device_is_left_to_keras():
    offer("CPU:0")
    assert replicas_of_fit(network()) == 1
    assert not local_devices.are_wanted()


@pytest.mark.parametrize(("every", "names"), quick_first(1, [("1", ("CPU:0", "CPU:1")), ("4", ())]))
def test_workers_that_average_weights_train_on_one_device_each(monkeypatch, every, names):
    monkeypatch.setattr(of_script, "from_environment", lambda _: Task(num_workers=2))
    monkeypatch.setattr(process_ring, "is_wanted", lambda: True)
    environ = {"TRAINER_LOGICAL_CPUS": "2", "TRAINER_SYNC_EVERY": every}
    monkeypatch.setattr(of_script, "_refuse_missing", lambda _: None)
    assert of_script.devices_of_script(environ) == names


SCRIPT = """
import tensorflow as tf

data = tf.data.Dataset.from_tensor_slices(tf.ones([64, 2])).map(lambda x: (x, x)).batch(16)
print("TOLD", len(tf.config.list_logical_devices("CPU")))
model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
model.compile("sgd", "mse")
show = lambda *_: print("TOLD", model.distribute_strategy.num_replicas_in_sync)
model.fit(data, verbose=0, callbacks=[tf.keras.callbacks.LambdaCallback(on_train_begin=show)])
"""


@pytest.mark.parametrize(
    ("settings", "code", "printed"),
    quick_first(
        2,
        [
            ({"TRAINER_LOGICAL_CPUS": "2"}, 0, ["2", "2"]),
            ({"TRAINER_LOGICAL_CPUS": "3", "TRAINER_DEVICES": "CPU:0"}, 0, ["3", "1"]),
            ({"TRAINER_LOGICAL_CPUS": "2", "TRAINER_SYNC_EVERY": "4"}, 0, ["2", "2"]),
            ({"TRAINER_LOGICAL_CPUS": "2", "TRAINER_WIRE": "bfloat16"}, 0, ["2", "2"]),
            ({"TRAINER_LOGICAL_CPUS": "2", "TRAINER_DEVICES": "CPU:1"}, 78, []),
            ({"TRAINER_DEVICES": "GPU:1"}, 78, []),
        ],
    ),
)
def test_settings_of_devices_hold_for_scripts(tmp_path, settings, code, printed):
    environ = {**os.environ, **settings, "TRAINER_RUN_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, check=False
    )
    told = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("TOLD")]
    assert (ended.returncode, told) == (code, printed), ended.stderr

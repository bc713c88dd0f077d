"""Rounds of steps that each worker of a ring takes by itself, and the means that end them."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from meeting_place import MeetingPlace
from test_gradients_wire import Echo
from test_own_state import Pointer

from cluster_trainer.checkpoints.checkpoint import Checkpoint, Stage
from cluster_trainer.checkpoints.resume import Found, refuse_other_run
from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.fits.program import options_of
from cluster_trainer.problems import ConfigurationError, ExitCode
from conftest import quick_first

EVERY = 3
# Two workers train by `fit`, and worker 0 computes the expected weights by hand. An epoch has
# 4 batches. The last batch has 1 example, so that one worker has none.
SCRIPT = """
import hashlib, json, os, sys
import keras, numpy as np, tensorflow as tf

EVERY = int(os.environ["TRAINER_SYNC_EVERY"])
RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
noise = np.random.default_rng(0)
X, Y = noise.normal(size=(25, 3)).astype("float32"), noise.normal(size=(25, 1)).astype("float32")
# Shares of two rows would leave batch normalisation gradients of rounding alone.
BATCH, EPOCHS, WORKERS = 8, 2, 2
BATCHES = [(X[at : at + BATCH], Y[at : at + BATCH]) for at in range(0, len(X), BATCH)]


class Helper:  # Keras does not look into it
    def __init__(self):
        self.seen = tf.Variable(0.0, trainable=False)


class Keras(keras.Sequential):
    def update(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return loss


class Two(Keras):
    def update(self, x, y):
        first, last = self.layers[0].trainable_variables, self.layers[-1].trainable_variables
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            other = tf.reduce_mean(tf.abs(self(x, training=True) - y))
        self.other.apply(tape.gradient(other, last), last)
        self.optimizer.apply(tape.gradient(loss, first), first)
        for seen in (self.seen, self.helper.seen):
            seen.assign(0.5 * seen + tf.reduce_mean(y))
        return loss

    def train_step(self, data):
        return {"loss": self.update(*data)}


def made(optimizer, kind, **options):
    keras.utils.set_random_seed(1)
    model = kind([keras.Input((3,)), keras.layers.Dense(4, "tanh"),
                  keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(1)])
    model.compile(optimizer(), "mse", **options)
    if kind is Two:
        model.other = keras.optimizers.SGD(0.1, momentum=0.9)
        model.seen, model.helper = tf.Variable(0.0, trainable=False), Helper()
    return model


def state(model):
    found = [*model.variables, *model.optimizer.variables]
    if isinstance(model, Two):
        found += [*model.other.variables, model.seen, model.helper.seen]
    metrics = {id(v) for metric in model.metrics for v in metric.variables}
    return [v for v in found if id(v) not in metrics and "float" in str(v.dtype)]


def by_hand(*given, shares_one=False, **options):
    models = [made(*given, **options) for _ in range(WORKERS)]
    for model in models:
        model.optimizer.build(model.trainable_variables)
        if isinstance(model, Two):
            model.other.build(model.layers[-1].trainable_variables)
    for _ in range(EPOCHS):
        for step, (x, y) in enumerate(BATCHES, 1):
            for index, model in enumerate(models):
                rows = slice(len(x) * index // WORKERS, len(x) * (index + 1) // WORKERS)
                if shares_one and len(x) == 1:
                    rows = slice(0, 1)
                if len(x[rows]):
                    model.update(x[rows], y[rows])
                else:
                    momentum_only(model)
            if step % EVERY == 0 or step == len(BATCHES):
                for same in zip(*map(state, models)):
                    mean = np.mean([np.asarray(v) for v in same], axis=0)
                    for v in same:
                        v.assign(mean)
    models[0].optimizer.finalize_variable_values(models[0].trainable_variables)
    return models[0]


def momentum_only(model):
    still = [tf.zeros_like(v) for v in model.trainable_variables]
    if not isinstance(model, Two):
        model.optimizer.apply(still, model.trainable_variables)
        return
    model.other.apply(still[-2:], model.layers[-1].trainable_variables)
    model.optimizer.apply(still[:2], model.layers[0].trainable_variables)


def numbers(model):
    seen = [model.seen, model.helper.seen] if isinstance(model, Two) else []
    return np.concatenate([np.asarray(v).ravel() for v in [*model.weights, *seen]]).tolist()


adam = lambda: keras.optimizers.Adam(0.05)
momentum = lambda: keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0)
several = lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2, use_ema=True)


def stream():
    spec = tuple(tf.TensorSpec((None, n), "float32") for n in (3, 1))
    return tf.data.Dataset.from_generator(lambda: iter(BATCHES), output_signature=spec)


class EachBatch(keras.callbacks.Callback):
    calls = 0

    def on_train_batch_end(self, batch, logs=None):
        self.calls += 1


counting = EachBatch()
CASES = {
    "several": (several, Keras, {}, {}),
    "eager": (momentum, Keras, {"run_eagerly": True}, {}),
    "stream": (momentum, Keras, {}, {"x": stream()}),
    "two": (adam, Two, {}, {"callbacks": [counting]}),
    "two_eagerly": (adam, Two, {"run_eagerly": True}, {}),
}
told = {}
for name, (optimizer, kind, options, arguments) in CASES.items():
    model = made(optimizer, kind, **options)
    given = {"x": X, "y": Y, "batch_size": BATCH, "shuffle": False} | arguments
    if "x" in arguments:
        given = arguments
    history = model.fit(**given, epochs=EPOCHS, verbose=0).history
    finite = bool(np.isfinite(history["loss"]).all())
    wanted = []
    if RANK == 0:  # a batch of one may be one that nobody can cut, where its size is unknown
        wanted = numbers(by_hand(optimizer, kind, shares_one=name == "stream", **options))
    told[name] = [numbers(model), wanted, finite]
told["calls"] = counting.calls
print("TOLD", json.dumps(told), flush=True)
"""


def told_by_two(folder, every, **more):
    script = folder / "script.py"
    folder.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    settings = {"TRAINER_SYNC_EVERY": str(every), "TRAINER_FIRST_BATCH": "off", **more}
    with MeetingPlace(folder / "run", 2, str(script), **settings) as place:
        assert place.wait() == [0, 0], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    lines = [line for log in logs for line in log.splitlines() if line.startswith("TOLD")]
    return [json.loads(line.removeprefix("TOLD ")) for line in lines], "\n".join(logs)


def test_weights_slots_and_statistics_are_averaged_each_few_steps_and_at_an_epochs_end(tmp_path):
    (one, other), log = told_by_two(tmp_path, EVERY)
    assert f"weights are averaged every {EVERY} steps" in log
    assert one.pop("calls") == other.pop("calls") == 2 * 2  # rounds of three steps and of one
    for name, (found, wanted, is_finite) in one.items():
        assert is_finite, name
        assert found == other[name][0], f"{name}: the workers differ"
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5), name


@pytest.mark.long
def test_with_bfloat16_the_changes_of_a_round_are_rounded_and_the_weights_are_not(tmp_path):
    (one, other), _ = told_by_two(tmp_path, EVERY, TRAINER_WIRE="bfloat16")
    assert one.pop("calls") == other.pop("calls")
    for name, (found, wanted, _) in one.items():
        assert found == other[name][0], f"{name}: the workers differ"
        assert found == pytest.approx(wanted, rel=1e-2, abs=5e-3), name
        is_rounded = found != pytest.approx(wanted, rel=1e-5, abs=1e-6)
        assert is_rounded == ("eager" not in name), name  # steps that run eagerly round nothing


TRAINER = ("-m", "trainer")
SETTINGS = {
    "TRAINER_DATASET": "digits",
    "TRAINER_EPOCHS": "12",
    "TRAINER_GLOBAL_BATCH_SIZE": "48",
    "TRAINER_SYNC_EVERY": "4",
    "TRAINER_STEPS_PER_CALL": "4",
    "TRAINER_CHECKPOINT_STEPS": "10",  # due within a round
    "TRAINER_TENSORBOARD": "none",
}


@pytest.mark.parametrize("wire", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_killed_worker_changes_no_bit(tmp_path, size, wire):
    settings = SETTINGS | {"TRAINER_WIRE": wire}
    with MeetingPlace(tmp_path / "undisturbed", size, *TRAINER, **settings) as place:
        assert place.wait() == [0] * size, place.logs
        undisturbed = place.workers[0].result
    with MeetingPlace(tmp_path / "disturbed", size, *TRAINER, **settings) as place:
        victim = place.workers[1]
        place.when(lambda: (victim.status.get("step") or 0) > 70, "step 70")
        victim.kill()
        victim.start()
        assert place.wait() == [0] * size, place.logs
        assert victim.starts == 2
        assert victim.result["resumed_from_step"] > 0
        for result in [worker.result for worker in place.workers]:
            assert result["weights_sha256"] == undisturbed["weights_sha256"]
            assert result["steps"] == undisturbed["steps"]


@pytest.fixture
def ring():
    """A ring with rounds, whose other worker has the same values as this one."""
    ring = Echo()
    process_ring.use(RenewableRing(lambda: ring))
    process_ring.let_rounds_have(EVERY)
    yield ring
    process_ring.use(None)
    process_ring.let_rounds_have(1)


class Decides(keras.Sequential):
    """Applies gradients only where the loss is large."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)

        def apply():
            self.optimizer.apply(gradients, self.trainable_variables)
            return 0

        tf.cond(loss > 1.0, apply, lambda: 0)
        return {"loss": loss}


def model_of(*layers, kind=keras.Sequential, optimizer="sgd", loss="mse"):
    model = kind([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer, loss)
    return model


def scaled():
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())


class Counting:
    """A loss that counts examples in a variable of its own."""

    def __init__(self):
        self.count = tf.Variable(0, trainable=False)

    def __call__(self, y_true, y_pred):
        self.count.assign_add(tf.shape(y_true)[0])
        return tf.reduce_mean((y_true - y_pred) ** 2, -1)


REFUSED = {
    "loss scale": lambda: model_of(optimizer=scaled()),
    "synchronized": lambda: model_of(keras.layers.BatchNormalization(synchronized=True)),
    "counts": lambda: model_of(Pointer()),
    "counts of a loss": lambda: model_of(loss=Counting()),
    "decides": lambda: model_of(kind=Decides),
}
X, Y = np.ones((16, 4), np.float32), np.ones((16, 1), np.float32)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("keeps_nothing", "ring")
def test_what_has_no_mean_or_sums_in_each_step_is_refused(name, capfd):
    with pytest.raises(SystemExit) as ended:
        REFUSED[name]().fit(X, Y, batch_size=8, verbose=0)
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    assert "TRAINER_SYNC_EVERY" in capfd.readouterr().err


@pytest.mark.usefixtures("keeps_nothing", "ring")
def test_a_loop_of_ones_own_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        model_of().train_on_batch(X, Y)
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    assert "train_on_batch" in capsys.readouterr().err


@pytest.mark.usefixtures("keeps_nothing")
def test_between_two_means_nothing_of_the_weights_is_sent(ring):
    model = model_of()
    model.fit(X, Y, batch_size=2, verbose=0, steps_per_epoch=8)
    weights = sum(int(np.prod(one.shape)) for one in model.trainable_variables)
    assert [size for size, *_ in ring.sums].count(weights) == 3  # after 3, 6 and 8 steps


@pytest.mark.usefixtures("ring")
def test_a_resume_with_another_number_of_steps_is_refused(tmp_path):
    parts = dict.fromkeys(("job", "stop", "deadline", "fits_ended", "network", "tell"))
    options = options_of(SimpleNamespace(**parts), tmp_path, {})
    saved = Checkpoint(5, Stage.TRAINING, options.described, {}, [], [])
    found = Found(saved, b"", "worker-0", is_here=True)
    refuse_other_run(found, options.described, [])
    process_ring.let_rounds_have(EVERY + 1)
    now = options_of(SimpleNamespace(**parts), tmp_path, {}).described
    for described in (now, {}):
        with pytest.raises(ConfigurationError, match=f"TRAINER_SYNC_EVERY.*{EVERY}"):
            refuse_other_run(found, described, [])


# An optimizer trains a network that is no part of the model.
UNTRACKED = """
import os
from types import SimpleNamespace
import keras, numpy as np, tensorflow as tf

net = keras.Sequential(
    [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = SimpleNamespace(net=net)
        self.head = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.own = keras.optimizers.SGD(0.25)

    def call(self, x):
        return self.head(self.parts.net(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        weights = self.parts.net.trainable_variables
        self.own.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


model = Model()
model.compile("sgd", run_eagerly=bool(int(os.environ["EAGER"])))
x, y = np.ones((8, 1), "float32"), np.array([0, 0, 4, 4] * 2, "float32")[:, None]
model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
print("TOLD", float(net.get_weights()[0][0, 0]))
"""


@pytest.mark.parametrize("eager", quick_first(1, ["0", "1"]))
def test_weights_that_only_the_optimizer_knows_are_averaged(tmp_path, eager):
    file = tmp_path / "train.py"
    file.write_text(UNTRACKED)
    with MeetingPlace(tmp_path, 2, str(file), TRAINER_SYNC_EVERY="2", EAGER=eager) as place:
        assert place.wait() == [0, 0], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    told = [line.split()[1] for log in logs for line in log.splitlines() if "TOLD" in line]
    assert told == ["1.5", "1.5"]


# The gradients end before the second round, like those of a unit that no longer fires.
FADES = """
import keras, numpy as np

noise = np.random.default_rng(0)
x = noise.normal(size=(4 * 128, 16)).astype("float32") * np.linspace(1, 2, 16, dtype="float32")
x[4 * 64 :] = 0  # the second round has no gradients
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1, use_bias=False)])
model.compile(keras.optimizers.RMSprop(0.001, rho=0.9), "mse")
model.fit(x, noise.normal(size=len(x)), batch_size=4, epochs=2, verbose=0, shuffle=False)
squares = [one.numpy() for one in model.optimizer.variables if "velocity" in one.path]
print("TOLD", float(min(one.min() for one in squares)), np.isfinite(model.get_weights()[0]).all())
"""


@pytest.mark.long
def test_with_bfloat16_squares_of_gradients_stay_above_zero(tmp_path):
    """Otherwise their roots would be NaN, and then the weights."""
    file = tmp_path / "train.py"
    file.write_text(FADES)
    settings = {"TRAINER_SYNC_EVERY": "64", "TRAINER_WIRE": "bfloat16"}
    with MeetingPlace(tmp_path, 2, str(file), **settings) as place:
        assert place.wait() == [0, 0], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    for log in logs:
        _, least, is_finite = next(one for one in log.splitlines() if "TOLD" in one).split()
        assert float(least) > 0
        assert is_finite == "True"

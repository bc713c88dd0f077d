"""A script's own training loops over `cluster_trainer.share`, as in Keras's guides."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from meeting_place import MeetingPlace

from cluster_trainer import mean, share
from cluster_trainer.engine.replicas import losses, step_context
from cluster_trainer.problems import ConfigurationError
from conftest import quick_first

# Each loop notes numbers that are the same on one worker and on several.
BEGINNING = """
import json, os
import keras, numpy as np, tensorflow as tf
from cluster_trainer import mean, share, this_worker

NUMBERS = {}

def ended(*values):
    NUMBERS[name] = [float(one) for one in values]

def digest(model):
    return sum(float(abs(np.asarray(one)).sum()) for one in model.get_weights())

random = np.random.default_rng(0)
X = random.normal(size=(52, 4)).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("float32")
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(52, seed=3).batch(8)  # the last has 4
"""
SUPERVISED = """
keras.utils.set_random_seed({seed})
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.02)
loss_fn = keras.losses.BinaryCrossentropy(from_logits=True{reduction})
accuracy = keras.metrics.BinaryAccuracy(threshold=0)
losses = keras.metrics.Mean()

{decorator}
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_fn(y, logits)
    gradients = tape.gradient(loss, model.trainable_weights)
    optimizer.apply(gradients, model.trainable_weights)
    accuracy.update_state(y, logits)
    losses.update_state(loss)
    return loss

shown = []
for epoch in range(3):
    for x, y in share(DATA, model):
        shown.append(mean(train_step(x, y)))
    found = mean(accuracy), mean(losses), mean(accuracy.result())
ended(digest(model), *found, *[tf.reduce_sum(one) for one in shown])
"""
GAN = """
keras.utils.set_random_seed(5)
D = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
G = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
d_optimizer, g_optimizer = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, momentum=0.9)
loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

@tf.function
def train_step(real):
    size = tf.shape(real)[0]
    noise = real[:, :2] * 0.5
    with tf.GradientTape() as tape:
        pairs = tf.concat([G(noise), real], 0)
        labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], 0)
        d_loss = loss_fn(labels, D(pairs))
    gradients = tape.gradient(d_loss, D.trainable_weights)
    d_optimizer.apply_gradients(zip(gradients, D.trainable_weights))
    with tf.GradientTape() as tape:
        g_loss = loss_fn(tf.zeros((size, 1)), D(G(noise)))
    g_optimizer.apply(tape.gradient(g_loss, G.trainable_weights), G.trainable_weights)
    return d_loss, g_loss

for epoch in range(2):
    for real, _ in share(DATA):
        d_loss, g_loss = mean(train_step(real))
ended(digest(D), digest(G), d_loss, g_loss)
"""
# Each worker plays its own episodes. With one seed for all, the episodes are the same.
ACTOR_CRITIC = """
keras.utils.set_random_seed(7)
inputs = keras.Input((4,))
common = keras.layers.Dense(8, "tanh")(inputs)
outputs = keras.layers.Dense(2, "softmax")(common), keras.layers.Dense(1)(common)
model = keras.Model(inputs, outputs)
optimizer = keras.optimizers.Adam(0.01)
for episode in share(range(4)):
    state, terms = X[episode : episode + 1], []
    with tf.GradientTape() as tape:
        for step in range(5):
            probabilities, value = model(state)
            action = int(np.argmax(probabilities))
            terms.append(-tf.math.log(probabilities[0, action]) * 0.5 + (1.0 - value[0, 0]) ** 2)
            state = np.roll(state, action + 1, 1)
        loss = sum(terms)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
ended(digest(model), mean(loss))
"""
NORMALIZED = """
keras.utils.set_random_seed(1)
model = keras.Sequential([
    keras.Input((4,)), keras.layers.Dense(4),
    keras.layers.BatchNormalization(synchronized=True), keras.layers.Dropout(0.0),
    keras.layers.Dense(1),
])
optimizer = keras.optimizers.SGD(0.05)
for x, y in share(DATA, model):
    with tf.GradientTape() as tape:
        each = (model(x, training=True)[:, 0] - y[:, 0]) ** 2  # TensorFlow sums them
    optimizer.apply(tape.gradient(each, model.trainable_weights), model.trainable_weights)
ended(digest(model))
"""
# Some batches have five rows, also the one at which the second pass is left early.
MOVING = """
norm = keras.layers.BatchNormalization(momentum=0.5)
model = keras.Sequential([keras.Input((4,)), norm])
places = 0, 8, 16, 21, 29, 34
batches = [X[first:last] for first, last in zip(places, places[1:])]
for number in range(2):
    for place, x in enumerate(share(batches, model)):
        model(x, training=True)
        if number == 1 and place == 2:
            break
for x in share(batches[:1], model):
    ended(*norm.moving_mean.numpy())
"""
# The last batch has one row. A validation runs within the loop, which is left early.
UNEVEN = """
keras.utils.set_random_seed(2)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))
batches = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8)] + [(X[16:17], Y[16:17])]
errors, rows, seen = keras.metrics.MeanAbsoluteError(), keras.metrics.Sum(), []

@tf.function
def gradients_of(x, y):
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.reduce_mean((model(x) - y) ** 2))
    return tape.gradient(loss, model.trainable_variables)

for x, y in share(batches, model):
    assert isinstance(x, np.ndarray)
    errors.update_state(y, model(x))
    rows.update_state(np.ones(len(x)))
    for validated, _ in share([(X[20:25], Y[20:25])]):
        seen.append(mean(tf.reduce_mean(model(validated))))
    optimizer.apply(gradients_of(x, y), model.trainable_variables)
    if len(seen) == 3:
        break
ended(digest(model), mean(errors), mean(rows), *seen)
"""
# The elements have no rows, and the variables are TensorFlow's own.
WITHOUT_ROWS = """
keras.utils.set_random_seed(3)
w = tf.Variable(np.linspace(0.1, 1, 4, dtype="float32")[:, None])
optimizer = keras.optimizers.Adam(0.01)
huber = keras.losses.Huber(reduction="sum")
for episode in share(range(5)):
    assert isinstance(episode, int)
    with tf.GradientTape() as tape:
        loss = huber(Y[:9], X[:9] @ w) + 0.1 * tf.reduce_sum(w)
    optimizer.apply(tape.gradient(loss, [w]), [w])
ended(tf.reduce_sum(abs(w)))
"""
# The last batch traces the step again, but not the function that it calls.
IN_BRANCHES = """
keras.utils.set_random_seed(4)
normal, out = keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)
model = keras.Sequential([keras.Input((4,)), normal, out])
optimizer = keras.optimizers.SGD(0.05)
optimizer.build(model.trainable_variables)

@tf.function
def update(*gradients):
    optimizer.apply(gradients, model.trainable_variables)

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        is_so = optimizer.iterations >= 0
        normalized = tf.cond(is_so, lambda: normal(x, training=True), lambda: x)
        loss = tf.reduce_mean((out(normalized) - y) ** 2)
    update(*tape.gradient(loss, model.trainable_variables))

for x, y in share(DATA, model):
    step(x, y)
ended(digest(model))
"""
# Some steps scale the loss for the optimizer, and others do not. A tf.function applies it.
SCALED_IN_TURNS = """
keras.utils.set_random_seed(5)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.05)
ways = [lambda loss: loss, optimizer.scale_loss]

def of(scale):
    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            loss = scale(tf.reduce_mean((model(x) - y) ** 2))
        return tape.gradient(loss, model.trainable_variables)
    return gradients_of

@tf.function
def update(gradients):
    optimizer.apply(gradients, model.trainable_variables)

for each in ([of(way) for way in ways], [tf.function(of(way)) for way in ways]):
    for number, (x, y) in enumerate(share(DATA, model)):
        update(each[number % 2](x, y))
    for number, (x, y) in enumerate(share(DATA, model)):
        optimizer.apply(each[1 - number % 2](x, y), model.trainable_variables)
ended(digest(model))
"""
# The layer is called, and traced, before a loss is scaled.
SCALED_TOO_LATE = """
keras.utils.set_random_seed(6)
normal, out = keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)
model = keras.Sequential([keras.Input((4,)), normal, out])
optimizer = keras.optimizers.SGD(0.05)
forward = tf.function(lambda x: model(x, training=True))
told, steps = "", 0
try:
    for x, y in share(DATA, model):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((forward(x) - y) ** 2)
            loss = optimizer.scale_loss(loss) if steps else loss
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        steps += 1
except ValueError as error:
    told = str(error)
ended("outside of the `tf.function` that calls the layer" in told, steps)
"""
# After the loop, each worker calls the function that summed in it, with a whole batch.
AFTER_THE_LOOP = """
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.05)
ways = [lambda loss: loss, optimizer.scale_loss]

@tf.function
def update(gradients):
    optimizer.apply(gradients, model.trainable_variables)

for scale in ways:
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = scale(tf.reduce_mean((model(x) - y) ** 2))
        update(tape.gradient(loss, model.trainable_variables))

    for x, y in share(DATA, model):
        step(x, y)
    for start in (0, 20):
        step(X[start : start + 8], Y[start : start + 8])
ended(digest(model))
"""
# Both steps are traced before the loops, and the evaluation's last batch has one row.
TRACED_BEFORE = """
keras.utils.set_random_seed(8)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.05)
loss_fn = keras.losses.MeanSquaredError(reduction="sum")
accuracy, losses = keras.metrics.BinaryAccuracy(threshold=0), keras.metrics.Mean()

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

@tf.function
def test_step(x, y):
    accuracy.update_state(y, model(x))
    losses.update_state(loss_fn(y, model(x)))

VALIDATION = tf.data.Dataset.from_tensor_slices((X, Y)).take(5).batch(2)
for step in (train_step, test_step):
    for size in (1, 2, 4, 8):
        step(tf.constant(X[:size]), tf.constant(Y[:size]))
accuracy.reset_state(), losses.reset_state()
for x, y in share(DATA, model):
    train_step(x, y)
for x, y in share(VALIDATION, model):
    test_step(x, y)
ended(digest(model), mean(accuracy), mean(losses))
"""
# One function is called before, within and after loops over batches and over numbers.
IN_EACH_PLACE = """
keras.utils.set_random_seed(8)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.002)
loss_fn = keras.losses.MeanSquaredError(reduction="sum")
SIGNATURE = [tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])]

@tf.function(input_signature=SIGNATURE)
def loss_of(x, y):
    return loss_fn(y, model(x))

@tf.function(input_signature=SIGNATURE)
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)

found = [loss_of(X, Y)]
for _ in share(range(3), model):
    train_step(X[:8], Y[:8])
for x, y in share(DATA, model):
    train_step(x, y)
for _ in share(range(3), model):
    train_step(X[:8], Y[:8])
ended(digest(model), *found, loss_of(X, Y))
"""
RELAXED = """
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
step = tf.function(lambda x: tf.reduce_sum(model(x)), reduce_retracing=True)
for x in share([X[:size] for size in range(4, 40, 4)], model):
    step(x)
ended(step.experimental_get_tracing_count())
"""
# Two parts of a model are trained in turns, by one optimizer. The models are not given to `share`.
IN_TURNS = """
keras.utils.set_random_seed(20 + this_worker().index)
parts = [keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)]) for _ in range(2)]
optimizer = keras.optimizers.Adam(0.01)
optimizer.build([one for part in parts for one in part.trainable_weights])
for x, _ in share(DATA):
    for part in parts:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((parts[1](parts[0](x)) - x) ** 2)
        optimizer.apply(tape.gradient(loss, part.trainable_weights), part.trainable_weights)
ended(*map(digest, parts))
"""
# Only the chief restores the state of the optimizer, before its first loop.
RESTORED = """
keras.utils.set_random_seed(9)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.05))
optimizer.build(model.trainable_variables)
if this_worker().is_chief:
    for slot in optimizer.inner_optimizer.variables[2:]:  # after the step and the rate
        slot.assign(tf.ones(slot.shape))

for x, y in share(DATA, model):
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.reduce_mean((model(x) - y) ** 2))
    optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
ended(digest(model), *[tf.reduce_sum(abs(tf.cast(one, "float32"))) for one in optimizer.variables])
"""
AT_ONCE = """
from cluster_trainer.engine.replicas import step_context

# The last batch is smaller, and divides among the workers in another proportion.
for _ in zip(share(DATA), share(DATA)):
    assert step_context.is_shared() == (workers > 1)
for _ in zip(share(DATA), share(DATA), share(DATA)):
    pass
assert not step_context.is_shared()
try:
    for _ in zip(share(DATA), share(DATA.unbatch().batch(5))):
        pass
except ValueError as error:
    print(error, flush=True)
ended(step_context.is_shared())
"""
OF_EACH = 'json.loads(os.environ["TF_CONFIG"])["task"]["index"]'
# Texts are the script's own in the shares, too: TensorFlow has bytes for them.
NAMES = """
names = ["cat", "ox", "cat", "cat", "élan"]
cats = [keras.metrics.Mean(), keras.metrics.Mean()]
for x, *kinds in share([(X[:5], np.array(names), np.array(names, object))]):
    for metric, kind in zip(cats, kinds):
        metric.update_state((kind == "cat").astype("float32"))
ended(*[mean(one) for one in cats])
"""
LOOPS = {
    "names": NAMES,
    "supervised": SUPERVISED.format(seed=1, decorator="@tf.function", reduction=""),
    "eager": SUPERVISED.format(seed=1, decorator="", reduction=""),
    "sums": SUPERVISED.format(seed=1, decorator="@tf.function", reduction=', reduction="sum"'),
    "gan": GAN,
    "actor-critic": ACTOR_CRITIC,
    "normalized": NORMALIZED,
    "uneven": UNEVEN,
    "without rows": WITHOUT_ROWS,
    "in branches": IN_BRANCHES,
    "moving": MOVING,
    "scaled in turns": SCALED_IN_TURNS,
    "scaled too late": SCALED_TOO_LATE,
    "after the loop": AFTER_THE_LOOP,
    "traced before": TRACED_BEFORE,
    "in each place": IN_EACH_PLACE,
    "relaxed": RELAXED,
    "in turns": IN_TURNS,
    "restored": RESTORED,
    "at once": AT_ONCE,
    "no common seed": SUPERVISED.format(seed=OF_EACH, decorator="@tf.function", reduction=""),
}
# All loops run in one process, because TensorFlow's import takes most of the time.
ALL = """
workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
for name, loop in json.loads({loops!r}).items():
    exec(loop, dict(globals()))
print("ENDED " + json.dumps(NUMBERS), flush=True)
"""
Numbers = dict[str, list[float]]


def on(workers: int, folder: Path) -> tuple[list[Numbers], str]:
    """Return the numbers of all loops on each worker, and worker 0's log."""
    file = folder / "train.py"
    file.write_text(BEGINNING + ALL.format(loops=json.dumps(LOOPS)))
    with MeetingPlace(folder, workers, str(file)) as place:
        assert place.wait() == [0] * workers, place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    lines = [next(one for one in log.splitlines() if one.startswith("ENDED ")) for log in logs]
    return [json.loads(line.removeprefix("ENDED ")) for line in lines], logs[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Numbers:
    (numbers,), _ = on(1, tmp_path_factory.mktemp("alone"))
    return numbers


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_loops_train_on_several_workers_as_on_one(workers, alone, tmp_path):
    everyone, log = on(workers, tmp_path)
    assert all(one == everyone[0] for one in everyone)
    for name in LOOPS.keys() - {"no common seed", "in turns", "scaled too late"}:
        assert everyone[0][name] == pytest.approx(alone[name], rel=2e-4), name
    assert everyone[0]["no common seed"][1] > 0.6  # its accuracy: it has learned
    assert everyone[0]["scaled too late"] == [1, 1]
    assert "tf.data.Dataset.zip" in log  # two loops at once need shares of one size


def test_other_data_are_refused(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(f"{BEGINNING}for _ in share(DATA.shuffle(9, seed={OF_EACH})): pass")
    with MeetingPlace(tmp_path, 2, str(file)) as place:
        assert place.wait() == [78, 78], place.logs
        assert "the seeds of shuffles" in place.logs


# The script assigns weights from its share.
APART = """
w = tf.Variable([[float(json.loads(os.environ["TF_CONFIG"])["task"]["index"])] * 4])
optimizer = keras.optimizers.SGD(0.1)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(x, w, transpose_b=True) ** 2)
    optimizer.apply(tape.gradient(loss, [w]), [w])

for x, _ in share(DATA):
    step(x)
for x, _ in share(DATA):
    w.assign_sub([[float(x[0, 0])] * 4])
"""
# One worker kills itself.
KILLED = """
optimizer = keras.optimizers.SGD(0.1)
w = tf.Variable([[1.0] * 4])

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(x, w, transpose_b=True) ** 2)
    optimizer.apply(tape.gradient(loss, [w]), [w])

for number, (x, _) in enumerate(share(DATA)):
    if number == 2 and json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
        os.kill(os.getpid(), 9)
    step(x)
"""


# Labels in a list would be whole on each worker, beside its share of the rows.
LISTED = """
for batch in share([{"rows": X[:4], "labels": [0, 1, 1, 0]}]):
    pass
"""


@pytest.mark.parametrize(
    ("script", "codes", "told"),
    quick_first(
        1,
        [
            (LISTED, [78, 78], "a list of 4 values"),
            (APART, [78, 78], "weights of optimizer 0"),
            (KILLED, [75, -9], "was lost"),
        ],
    ),
)
def test_a_loop_that_cannot_go_on_ends_as_a_fit_does(script, codes, told, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(BEGINNING + script)
    with MeetingPlace(tmp_path, 2, str(file)) as place:
        assert place.wait() == codes, place.logs
        assert told in place.logs


def test_where_it_cannot_share_it_says_so(monkeypatch):
    batches = [np.ones([4, 2])]
    assert [*share(batches)] == batches  # a single worker gets them unchanged
    assert len(share(batches)) == 1
    assert float(mean(3)) == 3
    with (
        tf.distribute.MirroredStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match="scope"),
    ):
        iter(share(batches))
    with pytest.raises(ValueError, match=r"tf\.function"):
        tf.function(lambda: [*share(batches)], autograph=False)()
    task = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    with pytest.raises(ConfigurationError, match="several workers without a ring"):
        iter(share(batches))


@pytest.mark.parametrize(
    ("rows", "traces", "advice"),
    quick_first(
        1,
        [
            (4, False, "tf.reduce_sum(losses)"),
            (3, False, "reduction='sum'"),
            (4, True, ""),
            (3, True, ""),
        ],
    ),
)
def test_a_vector_of_losses_whose_meaning_is_unknown_is_told(rows, traces, advice, caplog):
    """It may be a loss for each example, or a mean over the batch for each output."""
    losses._warn_of_losses_like_rows.cache_clear()  # noqa: SLF001
    losses._warn_of_losses_unlike_rows.cache_clear()  # noqa: SLF001
    weights = tf.Variable(tf.ones([2, 4]))
    share_of_loop = step_context.Share(
        tf.Variable(0.5), rows=frozenset({rows}), prepare=lambda *_: None
    )

    def gradient_of_outputs():
        with tf.GradientTape() as tape:
            of_outputs = tf.reduce_mean(tf.ones([rows, 2]) @ weights, 0)
        return tape.gradient(of_outputs, weights)

    with step_context.in_loop(share_of_loop):
        found = (tf.function(gradient_of_outputs) if traces else gradient_of_outputs)()
    assert advice in caplog.text
    assert bool(advice) == bool(caplog.text)
    if traces:
        np.testing.assert_allclose(found, tf.ones([2, 4]))

"""Workers that draw the order of their data for themselves are refused or warned."""

import re

import pytest
from meeting_place import MeetingPlace

HEAD = """
import json, os
import keras, numpy as np, tensorflow as tf

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
ROWS = np.arange(64, dtype=np.float32).reshape(32, 2) / 64
LABELS = ROWS[:, :1]
ROWS_OF_TF = tf.data.Dataset.from_tensor_slices((ROWS, LABELS))
np.random.seed(RANK)  # as unseeded ones are
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")

class Batches(keras.utils.PyDataset):
    order = np.arange(32)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = self.order[8 * index : 8 * index + 8]
        return ROWS[rows], LABELS[rows]

class Shuffled(Batches):
    def on_epoch_end(self):
        self.order = np.random.permutation(32)

class Augmented(Batches):
    def __getitem__(self, index):
        rows, labels = super().__getitem__(index)
        return rows + np.random.normal(size=rows.shape), labels

class SometimesMirrored(Batches):
    "Each batch is one of two, by chance."

    def __getitem__(self, index):
        rows, labels = super().__getitem__(index)
        return (rows[:, ::-1] if np.random.random() < 0.5 else rows), labels

    def on_epoch_end(self):
        pass

def generated():
    while True:
        yield ROWS[np.random.permutation(32)[:8]], LABELS[:8]

order = np.random.permutation(32)
"""
REFUSED = {
    "a pipeline": (
        "model.fit(ROWS_OF_TF.shuffle(32, seed=np.random.randint(1e6)).batch(8), verbose=0)",
        "the seeds of shuffles: received",
    ),
    "arrays to validate with": (
        "model.fit(ROWS, LABELS, verbose=0, validation_data=(ROWS[order], LABELS[order]))",
        "SHA-256 of some of their examples: received",
    ),
}
LET_ALONE = """
model.fit(Augmented(), epochs=2, verbose=0, validation_data=Batches())
model.evaluate(ROWS_OF_TF.shuffle(32, seed=1).map(
    lambda row, label: (row + tf.random.normal((2,)), label)).batch(8), verbose=0)
print("NOT SURE", flush=True)
model.fit(generated(), steps_per_epoch=2, verbose=0)
model.fit(Shuffled(), epochs=3, verbose=0)
"""
EACH_ITS_OWN = """
noise = np.random.normal(size=(300 + RANK, 2)).astype("float32")  # more than a few
given = [(rows, rows) for rows in (noise, ROWS, ROWS[RANK::2])]
given.append((noise, tf.data.Dataset.from_tensor_slices(noise).batch(2)))
for rows, data in given:
    found = model.predict(data, verbose=0)
    np.testing.assert_allclose(found, rows @ model.get_weights()[0], rtol=1e-5, atol=1e-6)

class OwnRows(Batches):
    def __getitem__(self, index):
        return ROWS[2 * index : 2 * index + 1 + RANK]

    def on_epoch_end(self):
        pass

assert len(model.predict(OwnRows(), verbose=0)) == 4 * (1 + RANK)

class Noisy(keras.Model):
    "Is built by its first call, and draws in each."

    def __init__(self):
        super().__init__()
        self.dense, self.drop = keras.layers.Dense(1), keras.layers.Dropout(0.5)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs):
        self.calls.assign_add(1)
        drawn = keras.random.normal(keras.ops.shape(inputs))  # by Keras's own generator
        return self.dense(self.drop(inputs, training=True) + drawn)

class Counts(keras.callbacks.Callback):
    batches = 0

    def on_predict_batch_end(self, batch, logs=None):
        self.batches += 1

class Samples(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        rows = np.random.normal(size=(4 + RANK, 2))  # as many batches as rows
        assert self.model.predict(rows, batch_size=1, verbose=0).shape == (4 + RANK, 1)

model = Noisy()
counts = Counts()
model.predict(noise, verbose=0, callbacks=[counts])
try:
    model.predict(noise[:, : 2 - RANK], verbose=0)
except (ValueError, tf.errors.InvalidArgumentError):
    assert RANK, "only worker 1 has rows that are too narrow"
model.compile("sgd", "mse")
model.fit(ROWS, LABELS, batch_size=8, epochs=3, verbose=0, callbacks=[Samples()])
print("WEIGHTS", model.dense.kernel.numpy().tolist(), counts.batches, flush=True)

class Eager(keras.Model):
    "What Keras's symbols cannot build."

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs["a"]) * (2 if keras.ops.convert_to_numpy(inputs["a"]).any() else 1)

model = Eager()
model.compile(run_eagerly=True)
found = model.predict({"a": noise, "b": None}, verbose=0)
np.testing.assert_allclose(found, 2 * noise @ model.get_weights()[0], rtol=1e-5, atol=1e-6)
keras.utils.set_random_seed(100 + RANK)
keras.random.normal((1,))  # of a script that draws on each worker for itself
model.predict({"a": noise, "b": None}, verbose=0)
print("OWN SEED", keras.random.normal((1,)).numpy().tolist(), flush=True)
"""
CALLBACKS_OWN = """
class Evaluates(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        data = ROWS_OF_TF.shuffle(32, seed=np.random.randint(1e6)).batch(8)
        self.model.evaluate(data, verbose=0)

model.fit(ROWS, LABELS, batch_size=8, epochs=2, verbose=0, callbacks=[Evaluates()])
"""
DIFFER = "the workers' data differ"
pytestmark = pytest.mark.long


@pytest.fixture
def ended(tmp_path):
    """Return a function that runs a program on two workers, and returns exit codes and logs."""

    def ended(body):
        script = tmp_path / "script.py"
        script.write_text(HEAD + body)
        with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
            return place.wait(), place.logs

    return ended


@pytest.mark.parametrize("which", REFUSED)
def test_what_each_draws_for_itself_is_refused(ended, which):
    body, expected = REFUSED[which]
    codes, logs = ended(body)
    assert codes == [78, 78], logs
    assert logs.count(expected) >= len(codes), logs
    assert DIFFER not in logs


def test_what_is_drawn_anew_each_time_is_let_alone(ended):
    codes, logs = ended(LET_ALONE)
    assert codes == [0, 0], logs
    for one in logs.split("--- ")[1:]:
        assert one.count(DIFFER) >= 2, logs  # of the generator and of the shuffled batches
        assert one.index(DIFFER) > one.index("NOT SURE"), logs


def test_what_repeats_itself_by_chance_is_not_refused(ended):
    codes, logs = ended("model.fit(SometimesMirrored(), epochs=30, verbose=0)")
    assert codes == [0, 0], logs


def test_what_a_callback_evaluates_is_not_refused(ended):
    """A new worker draws other seeds than the workers whose fit goes on."""
    codes, logs = ended(CALLBACKS_OWN)
    assert codes == [0, 0], logs
    assert DIFFER in logs


A_GAME = """
model = keras.Sequential([
    keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1),
])
model.compile("sgd", "mse")
keras.utils.set_random_seed(RANK)

def expected(rows):
    return np.asarray(model(rows, training=False))

for episode in range(3):
    for _ in range(2 + 3 * RANK):  # the workers' games are of different lengths
        state = np.random.normal(size=(1 + RANK, 2)).astype("float32")
        for predict in (model.predict_on_batch, lambda rows: model.predict(rows, verbose=0)):
            np.testing.assert_allclose(predict(state), expected(state), rtol=1e-5)
    print("NOT YET", flush=True)
    states = np.random.normal(size=(8, 2)).astype("float32")
    model.train_on_batch(states, states[:, :1])
    print("TRAINED", flush=True)
    model.fit(ROWS, LABELS, verbose=0)
print("WEIGHTS", [one.tolist() for one in model.get_weights()], flush=True)
"""


def test_each_worker_may_play_a_game_of_its_own(ended):
    """In reinforcement learning, a worker that predicts more often does not wait for the others."""
    codes, logs = ended(A_GAME)
    assert codes == [0, 0], logs
    assert len({*re.findall(r"WEIGHTS (.*)", logs)}) == 1
    for one in logs.split("--- ")[1:]:
        assert one.count(DIFFER) == 1, logs
        assert one.index("NOT YET") < one.index(DIFFER) < one.index("TRAINED"), logs


def test_batches_of_different_sizes_are_refused(ended):
    codes, logs = ended("model.train_on_batch(ROWS[: 8 + RANK], LABELS[: 8 + RANK])")
    assert codes == [78, 78], logs
    for one in logs.split("--- ")[1:]:
        assert "worker-0 has 8, worker-1 has 9" in one, logs


def test_each_worker_may_predict_rows_of_its_own(ended):
    """A GAN's script does so with noise, at the end of each epoch."""
    codes, logs = ended(EACH_ITS_OWN)
    assert codes == [0, 0], logs
    weights = re.findall(r"WEIGHTS (.*)", logs)
    assert len(weights) == 2
    assert len({*weights}) == 1
    assert len({*re.findall(r"OWN SEED (.*)", logs)}) == 2
    assert logs.count("each predicts its own rows") == len(codes), logs

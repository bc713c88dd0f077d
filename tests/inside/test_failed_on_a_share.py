"""A step that works on a whole batch, but fails on a share while it runs, is refused (78)."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from meeting_place import MeetingPlace
from ring_peer import ring_of_two

from cluster_trainer.collectives import over_ring
from cluster_trainer.engine.data import again
from cluster_trainer.engine.failed_step import by_xla
from cluster_trainer.problems import ExitCode
from conftest import quick_first, strategy_of

DRAWS = np.random.default_rng(0)
INPUTS = DRAWS.random((60, 4)).astype("float32")
TARGETS = INPUTS.sum(1, keepdims=True)
IDS = np.arange(20) % 8
TABLE = DRAWS.random((8, 4)).astype("float32")
pytestmark = pytest.mark.usefixtures("keeps_nothing")


class Dense(keras.Model):
    """A model of one layer, which is built."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
        self.dense.build((None, 4))
        self.built = True

    def call(self, inputs):
        return self.dense(inputs)

    def trained(self, loss_of):
        with tf.GradientTape() as tape:
            loss = loss_of()
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class MicroBatches(Dense):
    def of_parts(self, data):
        parts = zip(*(tf.split(part, 4) for part in data[:2]), strict=True)  # SPLITS
        return tf.add_n([tf.reduce_mean((self.dense(x) - y) ** 2) for x, y in parts]) / 4

    def train_step(self, data):
        return self.trained(lambda: self.of_parts(data))

    def test_step(self, data):
        return {"loss": self.of_parts(data)}

    def predict_step(self, data):
        return tf.concat([self.dense(one) for one in tf.split(data, 4)], 0)


class Looks(Dense):
    """Looks up rows of a table, which is a part of each batch."""

    def train_step(self, data):
        (x, ids, y), table = data
        self.seen.assign_add(1.0)
        return self.trained(
            lambda: tf.reduce_mean((self.dense(x * tf.gather(table, ids)) - y) ** 2)
        )

    def __init__(self):
        super().__init__()
        self.seen = tf.Variable(0.0, trainable=False)


class LooksInFront(Looks):
    """Takes the table with an axis in front."""

    def train_step(self, data):
        (x, ids, y), tables = data
        return super().train_step(((x, ids, y), tables[0]))


def made(kind, *, replicas=2, **options):
    with strategy_of(replicas).scope():
        model = kind()
        model.compile(keras.optimizers.SGD(0.05), **options)
    return model


def with_table(table):
    rows = INPUTS[:20], IDS, TARGETS[:20]
    examples = tf.data.Dataset.from_tensor_slices(rows).batch(8)
    return tf.data.Dataset.zip((examples, tf.data.Dataset.from_tensors(table).repeat()))


def said_at_the_end_of(call, capsys):
    with pytest.raises(SystemExit) as ended:
        call()
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"run_eagerly": True}, marks=pytest.mark.long)],
    ids=["traced", "eager"],
)
def test_a_short_last_batch_that_a_share_cannot_divide_is_named(options, capsys):
    """The first three batches, of 16 rows, can be divided."""
    model = made(MicroBatches, **options)
    fit = {"batch_size": 16, "shuffle": False, "verbose": 0}
    said = said_at_the_end_of(lambda: model.fit(INPUTS, TARGETS, **fit), capsys)
    assert "6 rows of a batch of 12" in said
    assert "# SPLITS" in said
    assert "On one device the step works" in said


@pytest.mark.parametrize(
    "call",
    quick_first(
        1,
        [
            lambda model: model.evaluate(INPUTS, TARGETS, batch_size=16, verbose=0),
            lambda model: model.predict(INPUTS, batch_size=16, verbose=0),
            lambda model: model.fit(
                *(INPUTS[:32], TARGETS[:32]),
                validation_data=(INPUTS, TARGETS),
                batch_size=16,
                verbose=0,
            ),
            lambda model: [
                model.train_on_batch(INPUTS[:rows], TARGETS[:rows]) for rows in (16, 12)
            ],
        ],
    ),
    ids=["evaluate", "predict", "validation", "train_on_batch"],
)
def test_so_is_one_of_other_calls(call, capsys):
    assert "6 rows of a batch of 12" in said_at_the_end_of(lambda: call(made(MicroBatches)), capsys)


def test_a_table_with_as_many_rows_as_the_batch_is_named(capsys):
    model = made(Looks)
    said = said_at_the_end_of(lambda: model.fit(with_table(TABLE), verbose=0), capsys)
    assert "4 rows of a batch of 8" in said
    assert "tf.gather(table, ids)" in said
    assert "keep it in the model" in said
    assert model.seen <= 1  # the failed step may have added one, and the search keeps nothing


@pytest.mark.long
def test_the_advised_axis_in_front_gives_the_numbers_of_one_device():
    losses = []
    for replicas in (1, 2):
        keras.utils.set_random_seed(1)
        model = made(LooksInFront, replicas=replicas)
        losses += model.fit(with_table(TABLE[np.newaxis]), verbose=0).history["loss"]
    assert losses[1] == pytest.approx(losses[0])


class FailsAnyway(Dense):
    def train_step(self, data):
        x, y = data
        found = tf.gather(x, [100])
        return self.trained(lambda: tf.reduce_mean((self.dense(x + found) - y) ** 2))


def test_a_step_that_fails_on_one_device_too_keeps_its_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="100 is not in"):
        made(FailsAnyway).fit(INPUTS, TARGETS, batch_size=16, verbose=0)


def test_the_batches_of_a_generator_are_not_read_again():
    reads = []

    def batches():
        for rows in (16, 16, 12, *[16] * 40):
            reads.append(rows)
            yield INPUTS[:rows], TARGETS[:rows]

    model = made(MicroBatches)
    with pytest.raises(tf.errors.InvalidArgumentError):
        model.fit(batches(), verbose=0)
    assert len(reads) < 40


@pytest.mark.parametrize(("seconds", "found"), [(60.0, [2, 3, 4]), (-1.0, [])])
def test_batches_are_read_again_for_a_limited_time(seconds, found, monkeypatch):
    monkeypatch.setattr(again, "MOST_SECONDS", seconds)
    assert [int(one) for one in again.after(tf.data.Dataset.range(5), 2)] == found


class WithATable(layers.Layer):
    def build(self, _):
        self.table = self.add_weight(shape=(7, 2))

    def call(self, _):
        return self.table * 1.0


def test_predictions_with_other_rows_are_refused_if_the_batch_is_sparse(capsys):
    with strategy_of(2).scope():
        inputs = keras.Input((4,), sparse=True)
        model = keras.Model(inputs, [layers.Dense(1)(inputs), WithATable()(inputs)])
    rows = tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(INPUTS)).batch(20)
    said = said_at_the_end_of(lambda: model.predict(rows, verbose=0), capsys)
    assert "if inputs are sparse" in said


def test_a_function_of_xla_that_sums_is_named():
    with ring_of_two() as peer:

        @tf.function(jit_compile=True)
        def update(value):
            return over_ring.begin_sums(peer.mine, [value], "gradients")()

        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            update(tf.ones([2]))
    problem = str(by_xla.problem(caught.value))
    assert "the function update: received" in problem
    assert "`jit_compile=True` in `compile`" in problem


def test_a_function_that_xla_refuses_on_one_device_too_has_another_problem():
    @tf.function(jit_compile=True)
    def own():
        return tf.numpy_function(lambda: np.float32(1), [], tf.float32)

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        own()
    assert by_xla.problem(caught.value) is None


# The second worker's rows alone have indices that their share lacks.
SCRIPT = """
import keras
import numpy as np
import tensorflow as tf


class Looks(keras.Sequential):
    def train_step(self, data):
        x, table = data
        with tf.GradientTape() as tape:
            found = tf.gather(table, tf.cast(x[:, 0], tf.int32))
            loss = tf.reduce_mean(self(x) - found)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


model = Looks([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd")
rows = np.array([[0], [1], [2], [3]], "float32")
model.fit(rows, rows, batch_size=4, shuffle=False, verbose=0)
"""


def test_all_workers_end_with_78_though_the_step_fails_on_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with MeetingPlace(tmp_path / "run", 2, str(script), TRAINER_CHECKPOINT_STEPS="0") as place:
        assert place.wait() == [78, 78], place.logs
        for worker in place.workers:
            assert "2 rows of a batch of 4" in worker.log.read_text(), place.logs

"""Large gradients are summed in buckets, the first of them while others are still computed."""

import json
import os
import threading

import forks
import numpy as np
import pytest
import tensorflow as tf
from ring_peer import SECONDS, ring_of_two

from cluster_trainer.collectives import buckets, over_ring, process_ring
from cluster_trainer.collectives.ring.errors import PeerLost
from conftest import quick_first

MIB = 2**20
OTHERS = """
import json, sys, threading
from concurrent.futures import Future

import numpy as np
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
import keras
from cluster_trainer.collectives import buckets, process_ring
from cluster_trainer.collectives.rehearsal import Rehearsal
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.engine.steps import waits_of

LATE = 0.05
events, sizes = [], []


class Others(Rehearsal):
    error, is_closed, operations = None, False, 0

    def begin_all_reduce(self, values, **how):
        events.append("sum")
        sizes.append(values.size)
        total, later = super().begin_all_reduce(values, **how).result(), Future()
        threading.Timer(LATE, later.set_result, [total]).start()
        return later

    def close(self):
        self.is_closed = True

    def doubt(self, _):
        pass


process_ring.use(RenewableRing(lambda: Others(2)))
"""
IN_ONE_THREAD = """SIDE, LAYERS, STEPS = 64, 6, 5
buckets.BYTES_PER_RANK = SIDE * SIDE * 4


class Noted(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(SIDE, SIDE), initializer="identity")

    def call(self, inputs):
        name = self.name

        @tf.custom_gradient
        def product(one, kernel):
            def note(gradient):
                events.append(name)
                return gradient

            def back(upstream):
                gradient = tf.matmul(one, upstream, transpose_a=True)
                noted = tf.numpy_function(note, [gradient], tf.float32, stateful=False)
                of_kernel = tf.ensure_shape(noted, kernel.shape)
                return tf.matmul(upstream, kernel, transpose_b=True), of_kernel

            return tf.matmul(one, kernel), back

        return product(inputs, tf.convert_to_tensor(self.kernel))


layers = [Noted(name=f"layer_{number}") for number in range(LAYERS)]
model = keras.Sequential([keras.Input((SIDE,)), *layers])
model.compile("sgd", "mse")
inputs = np.ones((STEPS * 8, SIDE), np.float32)
model.fit(inputs, inputs, batch_size=8, verbose=0)
events.clear()
before = waits_of(model)["sums"]
model.fit(inputs, inputs, batch_size=8, verbose=0)
print(json.dumps([events, waits_of(model)["sums"] - before]))
"""
TEXTS_OF_ANY_LENGTH = """buckets.BYTES_PER_RANK = 64 * 64 * 4
layers = [keras.layers.Dense(64) for _ in range(4)]
tokens = keras.Input((None,), dtype="int32")


class Own(keras.Sequential):
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(inputs) - targets) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients)  # to what it was built with
        return {"loss": loss}


kind = {"keras": keras.Sequential, "own": Own}[sys.argv[1]]
model = kind([tokens, keras.layers.Embedding(9, 64), *layers])
model.compile("sgd", "mse")
model.optimizer.build(model.trainable_variables)
lengths = 3, 5, 4, 7
given = [(np.ones(one, "int32"), np.ones((one, 64), "float32")) for one in lengths]
signature = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 64], tf.float32)
data = tf.data.Dataset.from_generator(lambda: iter(given), output_signature=signature)
model.fit(data.padded_batch(2), verbose=0)
print(json.dumps(sizes[-2:]))
"""


@pytest.fixture
def told(tmp_path):
    """Return a function that runs a script as one of two workers, and returns its printed JSON."""

    def run(script, *arguments):
        file, printed = tmp_path / "script.py", tmp_path / "printed"
        file.write_text(OTHERS + script)
        ended = forks.start([file, *arguments], os.environ, printed).wait(180)
        assert ended == 0, printed.read_text()
        (told,) = [line for line in printed.read_text().splitlines() if line.startswith("[")]
        return json.loads(told)

    return run


def test_one_thread_begins_a_sum_before_it_computes_what_the_next_ones_need(told):
    """The wait at the end of a step is told, too."""
    events, waited = told(IN_ONE_THREAD)
    steps, late = 5, 0.05
    assert [sorted(events[first : first + 3]) for first in range(0, len(events), 3)] == [
        ["layer_4", "layer_5", "sum"],
        ["layer_2", "layer_3", "sum"],
        ["layer_0", "layer_1", "sum"],
    ] * steps, events
    assert {*events[2::3]} == {"sum"}, events
    assert 0.8 * steps * late < waited < 10 * steps * late


@pytest.mark.parametrize("step", quick_first(1, ["keras", "own"]))
def test_gradients_whose_shape_tensorflow_does_not_know_are_packed_as_their_variables(told, step):
    """Otherwise a worker that knows the shape could make other buckets than the rest."""
    a_layer = 64 * 64 + 64
    assert told(TEXTS_OF_ANY_LENGTH, step) == [2 * a_layer, 2 * a_layer]


def vectors(*sizes):
    return [tf.zeros([size]) for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "ranks", "expected"),
    [
        ([], 2, [[]]),
        ([0], 2, [[0]]),
        ([100], 2, [[0]]),
        ([MIB // 4] * 3, 2, [[0, 1, 2]]),
        ([MIB // 4] * 4, 2, [[2, 3], [0, 1]]),
        ([MIB // 4] * 4, 4, [[0, 1, 2, 3]]),
        ([MIB // 4] * 4, 1, [[3], [2], [1], [0]]),
        ([3 * MIB, 1, 1, 1], 2, [[0, 1, 2, 3]]),
        ([1, 1, 3 * MIB, 1, 1], 2, [[2, 3, 4], [0, 1]]),
        ([MIB] * 14, 2, [[12, 13], [10, 11], [8, 9], [6, 7], [4, 5], [2, 3], [0, 1]]),
    ],
)
def test_buckets_are_alike_in_size_and_the_last_values_are_in_the_first(sizes, ranks, expected):
    assert buckets.buckets_of(vectors(*sizes), tf.float32, ranks) == expected


def test_values_of_unknown_shape_are_one_bucket():
    spec = tf.TensorSpec([None, MIB])
    assert buckets.buckets_of([spec, *vectors(4 * MIB, 4 * MIB)], tf.float32, 2) == [[0, 1, 2]]


@pytest.fixture
def peer(monkeypatch):
    monkeypatch.setattr(buckets, "BYTES_PER_RANK", 8)  # four numbers a bucket, with two ranks
    with ring_of_two() as made:
        yield made


def summed(*given):
    return over_ring.begin_sums(*given)()


def adds(*values):
    return lambda ring: ring.all_reduce(np.array(values, np.float32), what="g")


VALUES = [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0], [7.0], [8.0, 9.0]]
FIRST, SECOND = adds(100, 200, 300, 400, 500, 600), adds(10, 20, 30)
"""The peer's sums: with the last three of the values, and with the others."""
SUMS = [[11, 22], [33], [104, 205, 306], [407], [508, 609]]


def in_lists(tensors):
    return [one.numpy().tolist() for one in tensors]


@pytest.mark.parametrize("compiled", [tf.function, lambda one: one], ids=["traced", "eager"])
def test_each_value_has_its_own_sum(peer, compiled):
    peers = peer.calls(FIRST, SECOND)
    step = compiled(lambda *values: summed(peer.mine, values, "g"))
    assert in_lists(step(*map(tf.constant, VALUES))) == SUMS
    peers.result(SECONDS)


def test_sparse_rows_are_gathered_after_buckets(peer):
    def gives(tensor):
        content = over_ring.as_bytes(tensor.numpy())
        return lambda ring: ring.all_gather(content, what="g")

    peers = peer.calls(FIRST, SECOND, gives(tf.ones([1, 1])), gives(tf.constant([7])))

    @tf.function
    def step(*values):
        rows = tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([3]), tf.constant([9, 1]))
        return summed(peer.mine, [*values[:2], rows, *values[2:]], "g")

    first, second, rows, *others = step(*map(tf.constant, VALUES))
    assert in_lists([first, second, *others]) == SUMS
    assert rows.indices.numpy().tolist() == [3, 7]
    peers.result(SECONDS)


def test_buckets_of_two_types_are_begun_before_any_is_waited_for(peer, monkeypatch):
    wide = [tf.constant([1.0, 2.0], tf.float64), tf.constant([3.0, 4.0], tf.float64)]
    of_wide = [
        lambda ring: ring.all_reduce(np.array([5.0, 6.0]), what="g"),
        lambda ring: ring.all_reduce(np.array([7.0, 8.0]), what="g"),
    ]
    begin, begun = peer.mine.begin_all_reduce, threading.Semaphore(0)

    def counted(*given, **how):
        begun.release()
        return begin(*given, **how)

    monkeypatch.setattr(peer.mine, "begin_all_reduce", counted)
    all_begun = lambda _: [begun.acquire(timeout=SECONDS / 10) for _ in range(4)]  # noqa: E731
    peers = peer.calls(all_begun, FIRST, SECOND, *of_wide)
    step = tf.function(lambda *values: summed(peer.mine, values, "g"))
    sums = step(*map(tf.constant, VALUES), *wide)
    assert in_lists(sums) == [*SUMS, [8, 10], [8, 10]]
    assert peers.result(SECONDS)[0] == [True] * 4


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_backward_pass_may_have_effects_anywhere(peer, place):
    """TensorFlow keeps effects in order, and the sums begin after them."""
    seen = []

    def note(gradient):
        seen.append(gradient.tolist())
        return gradient

    @tf.custom_gradient
    def noted(one):
        def back(upstream):
            shown = tf.numpy_function(note, [upstream], tf.float32)
            return tf.ensure_shape(shown, upstream.shape)

        return tf.identity(one), back

    peers = peer.calls(*[adds(0, 0, 0, 0)] * 9)
    kernels = [tf.Variable([2.0, 2, 2, 2]) for _ in range(3)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = tf.ones([4])
            for number, kernel in enumerate(kernels):
                value = (noted(value) if number == place else value) * kernel
            loss = tf.reduce_sum(value)
        gradients = tape.gradient(loss, kernels)
        return summed(peer.mine, gradients, "g")

    for turn in range(3):
        assert in_lists(step()) == [[4] * 4] * 3
        assert len(seen) == (turn + 1) * (place > 0)
    peers.result(SECONDS)


def test_a_step_that_has_failed_leaves_nothing_to_the_next(peer):
    """The first bucket was summed, but the second cannot be computed."""
    fails = tf.Variable(True)  # noqa: FBT003
    peers = peer.calls(FIRST, FIRST, SECOND)

    @tf.function
    def step(*values):
        both = values[0] * values[-1] / values[-1]  # so that the first bucket is begun before
        later = tf.gather(both, tf.where(fails, [7, 7], [0, 1]))
        return summed(peer.mine, [later, *values[1:]], "g")

    given = [*map(tf.constant, VALUES)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="7 is not in"):
        step(*given)
    fails.assign(False)  # noqa: FBT003
    assert in_lists(step(*given)) == SUMS
    peers.result(SECONDS)


def test_a_peer_that_is_lost_between_buckets_is_named(peer):
    peers = peer.calls(FIRST, lambda ring: ring.close())
    step = tf.function(lambda *values: summed(peer.mine, values, "g"))
    with pytest.raises(PeerLost) as caught, process_ring.failure_told():
        step(*map(tf.constant, VALUES))
    assert caught.value.rank == 1
    peers.result(SECONDS)


def test_no_more_is_held_up_than_what_only_later_buckets_need():
    @tf.function
    def step():
        one = tf.identity(tf.ones([4]), "of_both")
        first, second = one + 1.0, one + 2.0
        third = second + tf.identity(first)
        packed = [first * 1.0, second * 1.0, third * 1.0]
        held = buckets.needed_later(packed)
        names = [{operation.type for operation in operations} for operations in held]
        assert [len(operations) for operations in held] == [1, 2]
        assert names == [{"AddV2"}, {"AddV2", "Identity"}]
        return packed

    step()

"""Sums and gathered tensors within steps whose replicas are the workers of a ring."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from ring_peer import SECONDS, ring_of_two

from cluster_trainer.collectives import over_ring, process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import Replicas, count_of, ring_of
from cluster_trainer.collectives.ring.errors import OtherCall, PeerLost
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.collectives.workers import END, WorkersOfRing
from conftest import quick_first


@pytest.fixture
def peer():
    with ring_of_two() as made:
        yield made


def gives(value, what):
    """Return a call by which the peer gathers a tensor."""
    content = over_ring.as_bytes(value.numpy())
    return lambda ring: ring.all_gather(content, what=what)


def adds(value, what):
    """Return a call by which the peer sums an array."""
    return lambda ring: ring.all_reduce(np.asarray(value), what=what)


def summed(*given, **how):
    return over_ring.begin_sums(*given, **how)()


ONE = np.ones(1, np.float32)
eagerly_or_not = pytest.mark.parametrize("compiled", [tf.function, lambda one: one])


@eagerly_or_not
def test_sums_of_one_type_are_one_message_in_the_order_of_types(peer, compiled):
    peers = peer.calls(adds(np.arange(5, dtype=np.float32), "g"), adds([10, 20], "g"))
    values = [tf.constant([[1.0, 2.0]]), tf.constant(3, tf.int64), tf.constant([4.0, 5.0, 6.0])]
    values += [tf.constant(7, tf.int64)]
    sums = compiled(lambda *values: summed(peer.mine, values, "g"))(*values)
    assert [one.numpy().tolist() for one in sums] == [[[1, 3]], 13, [6, 8, 10], 27]
    assert [one.dtype for one in sums] == [one.dtype for one in values]
    peers.result(SECONDS)


@pytest.mark.parametrize(
    "dtype", [tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.bfloat16, tf.float16, tf.float64]
)
def test_every_type_is_summed_by_one_that_holds_it(peer, dtype):
    carrier = over_ring.CARRIERS.get(dtype, dtype).as_numpy_dtype
    peers = peer.calls(adds(np.array([1, 0], carrier), ""))
    (total,) = summed(peer.mine, [tf.cast([1, 0], dtype)])
    assert total.dtype == dtype
    expected = [True, False] if dtype == tf.bool else [2, 0]
    assert total.numpy().tolist() == expected
    peers.result(SECONDS)


@eagerly_or_not
def test_sparse_gradients_are_the_rows_of_all_in_the_order_of_ranks(peer, compiled):
    peers = peer.calls(
        adds(ONE, "g"),
        gives(tf.constant([[5.0, 6.0], [7.0, 8.0]]), "g"),
        gives(tf.constant([4, 0], tf.int64), "g"),
    )

    def sums():
        slices = tf.constant([[1.0, 2.0]]), tf.constant([4], tf.int64), tf.constant([9, 2])
        rows = tf.IndexedSlices(*slices)
        return summed(peer.mine, [rows, tf.ones([1])], "g")

    sparse, dense = compiled(sums)()
    assert sparse.values.numpy().tolist() == [[1, 2], [5, 6], [7, 8]]
    assert sparse.indices.numpy().tolist() == [4, 4, 0]
    assert tf.convert_to_tensor(sparse).numpy()[4].tolist() == [6, 8]
    assert dense.numpy() == [2]
    peers.result(SECONDS)


@eagerly_or_not
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (tf.constant(["an", "ä"]), tf.constant(["", "\0x", "last"])),
        (tf.constant([[1, 2]]), tf.zeros([0, 2], tf.int32)),
        (tf.constant([True]), tf.constant([False, True])),
        (tf.zeros([0, 3], tf.bfloat16), tf.ones([2, 3], tf.bfloat16)),
        (tf.constant([["a", "b"]]), tf.zeros([0, 2], tf.string)),
        (tf.zeros([0]), tf.zeros([0])),
        (tf.ones([1, 0, 2]), tf.ones([2, 0, 2])),
    ],
    ids=["strings", "nothing", "bool", "bfloat16", "rows", "none", "no-content"],
)
def test_any_tensors_are_gathered_whatever_their_numbers(peer, compiled, mine, theirs):
    peers = peer.calls(gives(theirs, "predict"))
    found = compiled(lambda: over_ring.gathered(peer.mine, mine, "predict"))()
    assert found.dtype == mine.dtype
    assert found.numpy().tolist() == [*mine.numpy().tolist(), *theirs.numpy().tolist()]
    peers.result(SECONDS)


def test_tensors_of_other_sizes_are_refused_on_all_in_plain_words(peer):
    """An example is texts that a layer has padded to the longest of each share."""
    peers = peer.calls(gives(tf.zeros([1, 3]), "predict"))
    with pytest.raises(ValueError, match=r"\[\[2, 2\], \[1, 3\]\].* pad the others"):
        over_ring.gathered(peer.mine, tf.zeros([2, 2]), "predict")
    peers.result(SECONDS)


@contextmanager
def circles(*sizes):
    """Yield a ring that is renewed to these sizes; in each, the other ranks gather their names."""
    made, held, mine = iter(sizes), [], []
    pool = ThreadPoolExecutor(sum(sizes))

    def connect():
        size, generation = next(made), len(mine) + 1
        pairs = [socket.socketpair() for _ in range(size)]  # a rank's right link is the first end
        ends = [(pairs[rank - 1][1], pairs[rank][0]) for rank in range(size)]
        ranks = [Ring(rank, size, generation, *ends[rank]) for rank in range(size)]
        held.extend(ranks)
        for ring in ranks[:-1]:
            name = tf.constant([f"rank {ring.rank}"])
            pool.submit(gives(name, "names"), ring)
        mine.append(ranks[-1])
        return mine[-1]

    try:
        yield RenewableRing(connect)
    finally:
        for ring in mine:  # after a failed assertion the others still wait for this rank
            ring.close()
        pool.shutdown()
        for ring in held:
            ring.close()


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}], ids=["", "jit"])
def test_a_function_that_was_traced_knows_its_place_in_each_ring(options):
    with circles(2, 3, 2) as ring:

        @tf.function(**options)
        def place():
            return over_ring.rank_of(ring), over_ring.size_of(ring)

        gather = tf.function(lambda: over_ring.gathered(ring, tf.constant(["me"]), "names"))
        for size in (2, 3, 2):
            if size != ring.size:
                ring.renew()
            assert [int(one) for one in place()] == [size - 1, size]
            names = [f"rank {rank}".encode() for rank in range(size - 1)]
            assert gather().numpy().tolist() == [*names, b"me"]
        for function in (place, gather):
            assert function.experimental_get_tracing_count() == 1


def test_calls_of_a_step_keep_their_order_whatever_they_wait_for(peer):
    names = [f"{number}" for number in range(20)]
    peers = peer.calls(*(adds(ONE, name) for name in names))

    @tf.function
    def step(start):
        found = []
        for number, name in enumerate(names):
            value = start
            for _ in range(len(names) - number):  # the first wait longest
                value = tf.linalg.matmul(value, start) / 300.0
            found += summed(peer.mine, [value[0, :1]], name)
        return found

    step(tf.ones([300, 300]))
    peers.result(SECONDS)


def test_calls_keep_their_order_in_conditions_loops_and_functions_within_a_step(peer):
    expected = ["first", *["even", "odd"] * 3, "within", "unused", "last"]
    peers = peer.calls(*(adds(ONE, name) for name in expected))

    def sum_of(value, what):
        return summed(peer.mine, [value], what)[0]

    @tf.function
    def within(value):
        return sum_of(value, "within")

    @tf.function
    def step(value, times):
        sum_of(value, "first")

        def more(turn, _):
            is_even = turn % 2 == 0
            even, odd = partial(sum_of, value, "even"), partial(sum_of, value, "odd")
            return turn + 1, tf.cond(is_even, even, odd)

        tf.while_loop(lambda turn, _: turn < times, more, (0, value))
        within(value)
        sum_of(value, "unused")  # all workers make this call, so none may skip it
        return sum_of(value, "last")

    assert step(tf.ones([1]), tf.constant(6)).numpy() == [2]
    peers.result(SECONDS)


def test_a_function_that_was_traced_sums_again_in_each_step(peer):
    peers = peer.calls(*[adds(ONE, "step")] * 5)
    step = tf.function(lambda value: summed(peer.mine, [value], "step")[0])
    assert [step(tf.constant([float(turn)])).numpy()[0] for turn in range(5)] == [1, 2, 3, 4, 5]
    assert step.experimental_get_tracing_count() == 1
    peers.result(SECONDS)


def test_workers_at_different_calls_both_hear_what_each_is_at(peer):
    peers = peer.calls(gives(tf.constant([1]), "predict (outputs)"))
    step = tf.function(lambda: over_ring.gathered(peer.mine, tf.constant([1]), "fit (metrics)"))
    with pytest.raises(OtherCall) as caught, process_ring.failure_told():
        step()
    for problem in (caught.value, peers.exception(SECONDS)):
        assert "predict (outputs)" in str(problem)
        assert "fit (metrics)" in str(problem)


def test_a_step_whose_peer_is_lost_fails_with_the_rings_reason(peer):
    peers = peer.calls(adds(ONE, ""), lambda ring: ring.close())
    step = tf.function(lambda: summed(peer.mine, [tf.ones([1])])[0])
    step()
    peers.result(SECONDS)
    with pytest.raises(PeerLost) as caught, process_ring.failure_told():
        step()
    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, tf.errors.OpError)


def test_an_error_of_a_step_that_is_not_the_rings_stays_tensorflows(peer):
    del peer
    step = tf.function(lambda index: tf.gather(tf.ones([3]), index))
    with pytest.raises(tf.errors.InvalidArgumentError), process_ring.failure_told():
        step(tf.constant(7))


def test_one_replica_of_a_process_is_one_of_the_rings(peer):
    strategy = tf.distribute.get_strategy()
    assert ring_of(strategy) is peer.mine
    assert count_of(strategy) == 2
    assert Replicas.of(strategy) == Replicas(total=2, first=0, local=1)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert ring_of(mirrored) is None
    assert count_of(mirrored) == 2


def test_workers_of_a_ring_tell_each_other_what_they_know(peer):
    mine = WorkersOfRing(peer.mine)

    def theirs(ring):
        workers = WorkersOfRing(ring)
        found = workers.gather(-2, "a"), workers.largest([0.5, 3.0], "b"), workers.slowest(1.0, "c")
        return *found, workers.broadcast(None, 0, "d"), workers.broadcast(b"mine", 1, "e")

    peers = peer.calls(theirs)
    found = mine.gather(2**40, "a"), mine.largest([1.5, 2.0], "b"), mine.slowest(0.1, "c")
    found = *found, mine.broadcast(b"yours", 0, "d"), mine.broadcast(None, 1, "e")
    assert found == ([2**40, -2], [1.5, 3.0], 1.0, b"yours", b"mine")
    assert peers.result(SECONDS) == [found]


def test_workers_part_however_the_ring_has_ended(peer):
    peer.ring.abort("a test")
    assert str(WorkersOfRing(peer.mine).part()) == "aborted by rank 1: a test"


def test_that_a_worker_has_left_is_no_failure(peer):
    peer.ring.close()
    assert WorkersOfRing(peer.mine).part() is None


def test_that_a_worker_was_killed_is_a_failure(peer):
    for connection in peer.ring._ring._sockets:  # noqa: SLF001  as the kernel does, without a word
        connection.shutdown(socket.SHUT_RDWR)
    assert isinstance(WorkersOfRing(peer.mine).part(), PeerLost)


def test_who_parts_twice_has_ended_well_once(peer):
    """A script does so with two of the trainer's fits, or with one and an `evaluate`."""
    peer.calls(lambda ring: ring.barrier(what=END))
    workers = WorkersOfRing(peer.mine)
    assert workers.part() is None
    assert workers.part() is None


class InGraphs:
    """Calls a function that sums, in the ways that the tests' ids name."""

    def __init__(self, ring):
        self.ring = ring
        self.inner = tf.function(self.both)

    def both(self, values):
        """Sum values over the ring, and their gradients likewise."""

        @tf.custom_gradient
        def both(values):
            sums = summed(self.ring, [values])
            return sums[0], lambda upstream: summed(self.ring, [upstream])[0]

        return both(values)

    def traced_twice(self, values):
        step = tf.function(lambda rows: self.inner(tf.reduce_mean(rows) * values))
        return step(tf.ones([4])), step(tf.ones([3]))

    def alone_later(self, values):
        return tf.function(lambda: self.inner(values))(), self.inner(values)

    def in_two_branches(self, values):
        is_so = tf.reduce_sum(values) > 0
        choose = tf.function(
            lambda: tf.cond(is_so, lambda: self.inner(values), lambda: -self.inner(values))
        )
        return (choose(),)

    def in_a_loop_and_after_it(self, values):
        @tf.function
        def step():
            (found,) = tf.while_loop(
                lambda _: True, lambda one: (self.inner(one),), (values,), maximum_iterations=1
            )
            return self.inner(found)

        return (step() - 1,)  # the peer adds 1 twice

    def gradient(self, branches):
        values = tf.ones([2])
        with tf.GradientTape() as tape:
            tape.watch(values)
            found = tf.function(branches)(values)
        return (tape.gradient(found, values),)

    def gradient_of_a_branch(self, _):
        return self.gradient(lambda one: tf.cond(one[0] > 0, lambda: self.both(one), lambda: one))

    def gradient_of_a_branch_in_a_branch(self, _):
        def branch(one):
            return tf.cond(one[0] > -1, lambda: self.both(one), lambda: one)

        return self.gradient(lambda one: tf.cond(one[0] > 0, lambda: branch(one), lambda: one))

    def gradient_of_a_loop_of_branches(self, _):
        def body(one):
            return (tf.cond(one[0] > 0, lambda: self.both(one), lambda: one),)

        return self.gradient(
            lambda one: tf.while_loop(lambda _: True, body, (one,), maximum_iterations=1)[0]
        )


@pytest.mark.parametrize(
    ("name", "sums"),
    quick_first(
        3,
        [
            ("traced_twice", 2),
            ("alone_later", 2),
            ("in_two_branches", 1),
            ("in_a_loop_and_after_it", 2),
            ("gradient_of_a_branch", 2),
            ("gradient_of_a_branch_in_a_branch", 2),
            ("gradient_of_a_loop_of_branches", 2),
        ],
    ),
)
def test_functions_branches_and_loops_sum_wherever_they_are_called(peer, name, sums):
    peers = peer.calls(*[adds(np.ones(2, np.float32), "")] * sums)
    for found in getattr(InGraphs(peer.mine), name)(tf.ones([2])):
        assert found.numpy().tolist() == [2, 2]
    peers.result(SECONDS)

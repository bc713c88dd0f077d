"""Gradients may travel round a ring as bfloat16; nothing else does."""

import socket
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.collectives import over_ring, process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.collectives.ring.traffic import Traffic
from cluster_trainer.fits.kept import consistency_check
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig
from conftest import strategy_of

SECONDS = 60
FINE = 1.0 + 2.0**-12  # bfloat16 has 8 significant bits, and rounds it to 1.0
NOT_FINITE = (np.nan, np.inf, -np.inf)
WORKERS = 2
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@pytest.fixture
def _as_bfloat16():
    process_ring.send_gradients_as("bfloat16")
    yield
    process_ring.use(None)
    process_ring.send_gradients_as("float32")


def summed_on(size, values_of, wire):
    """Return each rank's sums of these values, over a ring of sockets.

    The ranks sum eagerly. In a graph, each would hold one of TensorFlow's threads until all come.
    """
    pairs = [socket.socketpair() for _ in range(size)]
    ranks = [Ring(rank, size, 1, pairs[rank - 1][1], pairs[rank][0]) for rank in range(size)]
    rings = [RenewableRing(lambda ring=ring: ring) for ring in ranks]

    def on_rank(ring):
        values = [tf.constant(value) for value in values_of(ring.rank)]
        return [total.numpy() for total in over_ring.begin_sums(ring, values, wire=wire)()]

    try:
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(on_rank, rings, timeout=SECONDS))
    finally:
        for ring in rings:
            ring.close()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("wire", [None, "float32", "bfloat16"])
def test_all_ranks_have_the_same_bits(size, wire):
    def values_of(rank):
        drawn = np.random.default_rng(rank)
        return [drawn.standard_normal((300, 70), np.float32), drawn.standard_normal(7, np.float32)]

    first, *others = summed_on(size, values_of, wire)
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine.view(np.uint32), theirs.view(np.uint32))
    exact = np.sum([values_of(rank)[0] for rank in range(size)], axis=0, dtype=np.float64)
    error = np.abs(first[0] - exact).max() / np.abs(exact).max()
    assert (1e-4 < error < 1e-2) if wire == "bfloat16" else error < 1e-6


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_is_not_finite_stays_so(value):
    gradient = np.array([1, value, 3], np.float32)
    for found in summed_on(
        2, lambda rank: [gradient if rank else np.ones(3, np.float32)], "bfloat16"
    ):
        np.testing.assert_array_equal(found[0], gradient + 1)


def test_only_float32_is_rounded():
    values = [np.full(3, FINE, kind) for kind in (np.float32, np.float64)] + [np.full(3, 257)]
    for rounded, *exact in summed_on(2, lambda _: values, "bfloat16"):
        np.testing.assert_array_equal(rounded, np.full(3, 2.0, np.float32))
        for found, value in zip(exact, values[1:], strict=True):
            np.testing.assert_array_equal(found, 2 * value)


class Echo:
    """A ring whose other worker has the same values as this one; it notes each sum.

    Attributes:
        sums: (number of values, their type, their type on the wire) of each sum, in order.
    """

    size, rank, generation, operations = WORKERS, 0, 1, 0
    error, is_closed = None, False
    traffic = Traffic()
    members = tuple(range(WORKERS))

    def __init__(self):
        self.sums = []

    def all_reduce(self, values, *, wire=None, **_):
        self.sums.append((values.size, values.dtype.name, wire or values.dtype.name))
        return values * self.size

    def all_gather(self, value, **_):
        return [bytes(value)] * self.size

    def broadcast(self, value, holder, **_):
        assert holder == self.rank
        return value

    def barrier(self, **_):
        pass

    def doubt(self, _):
        pass


@pytest.mark.usefixtures("_as_bfloat16")
def test_gradients_alone_travel_so():
    """Metrics, counts of examples and BatchNorm's averages travel as float32."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5), keras.layers.BatchNormalization()]
    )
    model.compile("sgd", "mse", metrics=["mae"])
    ring = Echo()
    process_ring.use(RenewableRing(lambda: ring))
    model.fit(np.ones((16, 4), np.float32), np.ones((16, 5), np.float32), batch_size=8, verbose=0)
    rounded = {size for size, _, wire in ring.sums if wire == "bfloat16"}
    assert rounded == {sum(int(np.prod(one.shape)) for one in model.trainable_variables)}
    assert len([one for one in ring.sums if one[1] == "float32" and one[2] == "float32"]) > 0


def config_of(*flags):
    return TrainerConfig.read({"TRAINER_RUN_DIR": "/tmp"}, ["--collectives=auto", *flags])


def test_what_tensorflow_sums_is_not_sent_so():
    with pytest.raises(ConfigurationError, match=r"TRAINER_WIRE .*accepted: float32"):
        consistency_check.refuse_wire(config_of("--wire=bfloat16"), strategy_of(2))


@pytest.mark.parametrize(("wire", "replicas"), [("float32", 2), ("bfloat16", 1)])
def test_where_nothing_is_sent_or_as_it_is_nothing_is_refused(wire, replicas):
    consistency_check.refuse_wire(config_of(f"--wire={wire}"), strategy_of(replicas))

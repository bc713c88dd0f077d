"""TensorFlow's collectives sum gradients in packs of the size that the strategy was told."""

import itertools

import pytest
import tensorflow as tf

from cluster_trainer.collectives.replicas import summed
from cluster_trainer.distribution.strategy import communication_options

NCCL, RING = (
    tf.distribute.experimental.CommunicationImplementation[name] for name in ("NCCL", "RING")
)
MIB = 1024**2
bases = itertools.count(100_000, 1000)


@pytest.mark.parametrize(
    ("devices", "implementation", "size"),
    [
        (("GPU:0",), NCCL, 32 * MIB),
        (("GPU:0", "GPU:1"), NCCL, 32 * MIB),
        (("CPU:0",), RING, 0),
        (("CPU:0", "CPU:1"), RING, 0),
    ],
)
def test_nccl_alone_is_given_packs(devices, implementation, size):
    options = communication_options(devices)
    assert (options.implementation, options.bytes_per_pack) == (implementation, size)


def strategy_with(bytes_per_pack, monkeypatch):
    """Return a strategy of several workers, on two devices of this process."""
    kind = tf.distribute.MultiWorkerMirroredStrategy
    monkeypatch.setattr(kind, "_collective_key_base", next(bases))  # see conftest
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack, implementation=RING)
    return kind._from_local_devices(["CPU:0", "CPU:1"], options)  # noqa: SLF001


@pytest.mark.parametrize(("bytes_per_pack", "sums"), [(0, 1), (1000, 3), (MIB, 1)])
def test_a_step_sums_in_the_packs_that_the_strategy_was_told(bytes_per_pack, sums, monkeypatch):
    strategy = strategy_with(bytes_per_pack, monkeypatch)
    values = [tf.fill([1000], number) for number in (1.0, 2.0, 3.0)]

    @tf.function
    def step():
        totals = strategy.run(lambda: summed(list(map(tf.identity, values))))
        return [strategy.experimental_local_results(one)[0] for one in totals]

    graph = step.get_concrete_function().graph
    found = [one for one in graph.get_operations() if one.type.startswith("CollectiveReduce")]
    assert len(found) == sums * strategy.num_replicas_in_sync
    assert [one.numpy()[0] for one in step()] == [2, 4, 6]

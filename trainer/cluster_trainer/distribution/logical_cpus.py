"""MultiWorkerMirroredStrategy on several logical CPU devices of each worker.

TensorFlow gives this strategy all GPUs of a worker, or one CPU device, and has no argument for
other devices (`_initialize_local_devices` in
tensorflow/python/distribute/collective_all_reduce_strategy.py, read in 2.21). A cluster resolver
can only set the number of GPUs. So this one method is overridden.
"""

from collections.abc import Sequence

import tensorflow as tf

from cluster_trainer.private import tensorflow_names


class _Extended(tensorflow_names.CollectiveAllReduceExtended):
    """TensorFlow's implementation of the strategy, on the given devices."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        devices: Sequence[str],
        options: tf.distribute.experimental.CommunicationOptions,
    ) -> None:
        self._told_devices = devices
        super().__init__(strategy, cluster_resolver=None, communication_options=options)

    def _initialize_local_devices(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,  # noqa: ARG002
        worker_device: str,
    ) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker_device}/device:{name}" for name in self._told_devices), "CPU"


class LogicalCpusStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """MultiWorkerMirroredStrategy with a replica on each of these CPU devices of each worker.

    Args:
        devices: this worker's devices, such as CPU:0 and CPU:1; all workers need the same number.
        options: the options for communication between replicas.
    """

    def __init__(
        self, devices: Sequence[str], options: tf.distribute.experimental.CommunicationOptions
    ) -> None:
        tf.distribute.Strategy.__init__(self, _Extended(self, devices, options))

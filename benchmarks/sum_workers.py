"""Runs as each worker of `sums.py`, in the image: sums by TensorFlow's collectives and by the ring.

Both run in a compiled loop, like the trainer's steps, with the same arrays in the same processes,
in turn. `bare` is the ring called from Python. Prints one JSON object: "case bytes" -> the seconds
of a sum in each round.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.ring.ring import Ring

RANK, ROUNDS, SIZES = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
HOSTS = sys.argv[4:]
MOST_SUMS, BYTES_A_ROUND = 100, 2 * 10**7
BUFFER_BYTES = 2**22
RING_PORT, TENSORFLOW_PORT = 4000, 3000

Many = Callable[[tf.Tensor, tf.Tensor], object]
"""Sums these values this number of times."""


def connected() -> Ring:
    """Return the ring: each worker listens for its left neighbour and dials its right one."""
    server = buffered(socket.socket())
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", RING_PORT))
    server.listen()
    right_host = HOSTS[(RANK + 1) % len(HOSTS)]
    while True:
        right = buffered(socket.socket())
        try:
            right.connect((right_host, RING_PORT))
        except OSError:
            right.close()
            time.sleep(0.1)
        else:
            break
    return Ring(RANK, len(HOSTS), 0, server.accept()[0], right)


def buffered(connection: socket.socket) -> socket.socket:
    """Request buffers that hold a whole sum of small gradients; accepted sockets inherit them."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return connection


def strategy() -> tf.distribute.Strategy:
    """Return TensorFlow's strategy, with one thread per worker."""
    hosts = [f"{host}:{TENSORFLOW_PORT}" for host in HOSTS]
    task = {"type": "worker", "index": RANK}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": task})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf.distribute.MultiWorkerMirroredStrategy()


def looped(total_of: Callable[[tf.Tensor], tf.Tensor]) -> Many:
    """Return a function that does this number of sums in one call into TensorFlow."""

    @tf.function
    def many(values: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        total = values
        for _ in tf.range(count):
            total = total_of(values)
        return total

    return many


def by_tensorflow(distribution: tf.distribute.Strategy, dtype: tf.DType) -> Many:
    """Return a function that sums over replicas; values are sent as this type."""

    def summed(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        own = tf.identity(tf.cast(values, dtype))  # the replica's, which has a device
        return tf.cast(context.all_reduce("SUM", own), tf.float32)

    def total_of(values: tf.Tensor) -> tf.Tensor:
        return distribution.run(summed, (values,))

    return looped(total_of)


def by_ring(ring: Ring, wire: str) -> Many:
    """Return a function that sums over the ring, in TensorFlow's graph."""

    def total_of(values: tf.Tensor) -> tf.Tensor:
        total = tf.numpy_function(lambda own: ring.all_reduce(own, wire=wire), [values], tf.float32)
        return tf.ensure_shape(total, values.shape)

    return looped(total_of)


def bare(ring: Ring, wire: str) -> Many:
    """Return a function that sums over the ring, called from Python."""

    def many(values: tf.Tensor, count: tf.Tensor) -> None:
        own = values.numpy()
        for _ in range(int(count)):
            ring.all_reduce(own, wire=wire)

    return many


def main() -> None:
    """Measure, and print rank 0's results."""
    distribution = strategy()
    ring = connected()
    cases = {
        "tensorflow float32": by_tensorflow(distribution, tf.float32),
        "tensorflow bfloat16": by_tensorflow(distribution, tf.bfloat16),
        "ring float32": by_ring(ring, "float32"),
        "ring bfloat16": by_ring(ring, "bfloat16"),
        "bare float32": bare(ring, "float32"),
        "bare bfloat16": bare(ring, "bfloat16"),
    }
    seconds: dict[str, list[float]] = {}
    for size in SIZES:
        values = tf.constant(np.random.default_rng(RANK).standard_normal(size // 4, np.float32))
        count = tf.constant(min(MOST_SUMS, max(2, BYTES_A_ROUND // size)))
        for turn in range(ROUNDS + 1):  # the first one compiles, and warms up
            for case, many in cases.items():
                ring.barrier()
                begin = time.perf_counter()
                many(values, count)
                if turn:
                    took = (time.perf_counter() - begin) / int(count)
                    seconds.setdefault(f"{case} {size}", []).append(took)
    if RANK == 0:
        print(json.dumps(seconds), flush=True)
    ring.barrier()
    ring.close()
    os._exit(0)  # TensorFlow's own shutdown waits for its peers


main()

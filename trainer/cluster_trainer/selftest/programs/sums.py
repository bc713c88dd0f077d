"""Sums an array over all replicas of a strategy, and measures the time.

`selftest` runs it. On GPUs the strategy uses NCCL.
"""

import json
import sys
import time
from pathlib import Path

import tensorflow as tf

import cluster_trainer

NUMBERS, REPEATS = 2**24, 10


def main(kind: str, result: Path) -> None:
    """Write the sum of ones over all replicas, and the time of one sum in seconds.

    Args:
        kind: "mirrored" (this machine's devices) or "multiworker" (all machines).
        result: the file to write.
    """
    strategy = cluster_trainer.start_strategy(strategy=kind, collectives="tensorflow")

    @tf.function
    def summed() -> tf.Tensor:
        def on_replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return tf.reduce_max(context.all_reduce("SUM", tf.ones([NUMBERS])))

        return strategy.experimental_local_results(strategy.run(on_replica))[0]

    found = float(summed())
    begin = time.perf_counter()
    for _ in range(REPEATS):
        found = float(summed())
    facts = {
        "replicas": strategy.num_replicas_in_sync,
        "sum": found,
        "megabytes": 4 * NUMBERS / 1e6,
        "seconds": (time.perf_counter() - begin) / REPEATS,
    }
    result.write_text(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""`make bench`: run every benchmark and print its table."""

import os

from benchmarks import (
    checkpoints,
    fewer_sums,
    keras_fit,
    rendezvous,
    slow_input,
    start_up,
    sums,
)
from benchmarks.clusters import kills, speed
from benchmarks.cost import __main__ as cost

if __name__ == "__main__":
    image = os.environ.get("IMAGE", "cluster-trainer:cpu")
    start_up.main(image)
    print()
    rendezvous.main()
    print()
    checkpoints.main(image)
    print()
    keras_fit.main(image)
    print()
    sums.main(image)
    print()
    fewer_sums.main(image, fewer_sums.WORKERS, fewer_sums.EVERY, fewer_sums.SEEDS)
    print()
    slow_input.main(image, slow_input.ROUNDS)
    print()
    speed.main(image)
    print()
    kills.main(image)
    print()
    cost.main()

"""`make bench`: run every benchmark and print its table."""

import os

from benchmarks import checkpoints, keras_fit, rendezvous, start_up, sums

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

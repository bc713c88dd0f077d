"""`make bench`: run every benchmark and print its table."""

import os

from benchmarks import rendezvous, start_up

if __name__ == "__main__":
    start_up.main(os.environ.get("IMAGE", "cluster-trainer:cpu"))
    print()
    rendezvous.main()

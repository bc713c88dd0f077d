"""`python -m benchmarks.clusters [NAME …] [--rounds N]`."""

import argparse
import os

from benchmarks.clusters.speed import ROUNDS, main
from benchmarks.clusters.variants import VARIANTS


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    listed = "\n".join(f"  {name:22} {one.what}" for name, one in VARIANTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.clusters",
        description=f"Compare ways to train.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of these; none: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"not given: {ROUNDS}")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; accepted: {', '.join(VARIANTS)}")
    return given


if __name__ == "__main__":
    chosen = arguments()
    main(os.environ.get("IMAGE", "cluster-trainer:cpu"), chosen.names, chosen.rounds)

"""Compares the examples/s of the variants, in turn, and prints ratios."""

import sys

import docker
from docker import DockerClient
from docker.errors import ImageNotFound

from benchmarks.clusters import machine, parts, table
from benchmarks.clusters.measuring import measure
from benchmarks.clusters.variants import TORCH, VARIANTS, Variant

PREDICTED = (
    "mnist_cnn over the ring at least 0.58 of twice one worker, 1.6 times TensorFlow's "
    "collectives and 2.8 times the tutorial's script; at 1 Gbit/s bfloat16 at least 1.3 times "
    "float32; mobilenet_v2 at least 1.95 times one worker"
)
ROUNDS = 5


def main(image: str, names: list[str] | None = None, rounds: int = ROUNDS) -> None:
    """Measure these variants, or all, and print a table."""
    client = docker.from_env()
    chosen = {name: VARIANTS[name] for name in names or VARIANTS}
    chosen = without_missing_images(client, chosen)
    print(f"predicted: {PREDICTED}\n")
    print(f"{machine.described(client, image)}; {rounds} rounds\n", flush=True)
    found = measure(client, image, chosen, rounds, lambda text: print(text, file=sys.stderr))
    print("\n".join([*table.lines(chosen, found.rates), "", *parts.lines(found.parts)]))
    print(f"\nat the end: {machine.load()}")


def without_missing_images(
    client: DockerClient, variants: dict[str, Variant]
) -> dict[str, Variant]:
    """Skip the variants that need the image with PyTorch, if it was not built."""
    try:
        client.images.get(TORCH)
    except ImageNotFound:
        found = {name: one for name, one in variants.items() if one.image != TORCH}
        if len(found) < len(variants):
            print("left out: PyTorch, whose image is built by scripts/build.sh torch\n")
        return found
    return variants

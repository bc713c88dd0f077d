"""Finds TensorFlow's GPUs and computes on each; `selftest` runs it."""

import json
import sys
from pathlib import Path

import tensorflow as tf

SIDE = 1024


def main(result: Path) -> None:
    """Write TensorFlow's version, its GPUs, and a sum that each GPU has computed."""
    gpus = tf.config.list_physical_devices("GPU")
    facts = {
        "tensorflow": tf.__version__,
        "for_gpus": bool(tf.test.is_built_with_cuda()),
        "gpus": [_described(gpu) for gpu in gpus],
        "sums": [_computed(f"GPU:{number}") for number in range(len(gpus))],
        "expected": float(SIDE**3),
    }
    result.write_text(json.dumps(facts))


def _described(gpu: tf.config.PhysicalDevice) -> dict[str, str]:
    details = tf.config.experimental.get_device_details(gpu)
    version = details.get("compute_capability") or ()
    return {"name": str(details.get("device_name", "")), "capability": ".".join(map(str, version))}


def _computed(device: str) -> float:
    """Return the sum of a matrix product. It needs working kernels for this GPU."""
    with tf.device(device):
        ones = tf.ones([SIDE, SIDE])
        return float(tf.reduce_sum(tf.linalg.matmul(ones, ones)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

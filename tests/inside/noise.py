"""Pictures to train on, and how far two trainings are apart."""

import numpy as np

from cluster_trainer.data.examples import Examples


def pictures(count):
    noise = np.random.default_rng(0)
    labels = noise.integers(0, 10, count)
    images = noise.integers(0, 100, [count, 28, 28, 1]) + 15 * labels[:, None, None, None]
    return Examples(images.astype(np.uint8), labels)


def relative_difference(one, other):
    return max(np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(one, other, strict=True))

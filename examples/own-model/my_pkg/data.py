"""Loads handwritten digits as sequences: each picture is read along a Hilbert curve.

On the curve, each group of four steps fills a square of 2x2 pixels, and each group of sixteen one
of 4x4. So pixels that are near in the sequence are near in the picture.
"""

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from hilbertcurve.hilbertcurve import HilbertCurve  # from requirements.txt

LEVELS = 4
SIDE = 2**LEVELS
EMBEDDED = "/opt/cluster-trainer/data"  # in the image; your own data would be in /data

Split = tuple[np.ndarray, np.ndarray]


def load() -> tuple[Split, Split]:
    """Return (train, test), each (sequences, float32 [n, 256, 1] in 0..1, labels, int64 [n])."""
    parts = tfds.load(
        "digits:1.0.0",
        data_dir=EMBEDDED,
        split=["train", "test"],
        batch_size=-1,
        as_supervised=True,
    )
    train, test = ((_along_curve(pictures), labels.numpy()) for pictures, labels in parts)
    return train, test


def _along_curve(pictures: tf.Tensor) -> np.ndarray:
    """Return sequences [n, 256, 1] of pictures, uint8 [n, 28, 28, 1]."""
    small = tf.image.resize(pictures, [SIDE, SIDE]).numpy() / np.float32(255)
    points = HilbertCurve(LEVELS, 2).points_from_distances(range(SIDE**2))
    rows, columns = np.transpose(points)
    return small[:, rows, columns]

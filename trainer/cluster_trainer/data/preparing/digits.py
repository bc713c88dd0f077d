"""The embedded data set: 1,797 real handwritten digits, as the project's own TFDS builder.

Source: scikit-learn's `load_digits`, the test part of the UCI "Optical Recognition of
Handwritten Digits" data (E. Alpaydin, C. Kaynak, 1998; 8x8 pixels with values 0 to 16).
Each picture is resized bilinearly to 28x28 and scaled to 0..255. So `digits` has exactly the
features of `mnist`, and a model for one of them trains on the other.

The set is prepared while the image is built (`python -m …data.preparing.digits FOLDER`), which is
the only moment that needs scikit-learn. From then on it is read by `tfds.load` like any other.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

TEST_EXAMPLES = 360
SPLIT_SEED = 0
SIDE = 28


class Digits(tfds.core.GeneratorBasedBuilder):
    """Handwritten digits, 28x28x1 uint8, labels 0 to 9: 1,437 to train and 360 to test."""

    name = "digits"
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(SIDE, SIDE, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
        )

    def _split_generators(self, _: tfds.download.DownloadManager) -> dict[str, Any]:
        images, labels = load_resized_digits()
        order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
        train, test = order[TEST_EXAMPLES:], order[:TEST_EXAMPLES]
        return {
            "train": self._generate_examples(images, labels, train),
            "test": self._generate_examples(images, labels, test),
        }

    def _generate_examples(
        self, images: np.ndarray, labels: np.ndarray, rows: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for row in rows.tolist():
            yield row, {"image": images[row], "label": int(labels[row])}


def load_resized_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return (images, labels): uint8 [1797, 28, 28, 1] in 0..255, int64 [1797] in 0..9."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  only there while preparing

    pictures, labels = load_digits(return_X_y=True)
    small = tf.reshape(tf.constant(pictures, tf.float32), [-1, 8, 8, 1])
    large = tf.image.resize(small, [SIDE, SIDE]) * (255.0 / 16.0)
    return tf.cast(tf.round(large), tf.uint8).numpy(), labels


def main(folder: str) -> None:
    """Prepare the data set below `folder` (as digits/1.0.0)."""
    Digits(data_dir=folder).download_and_prepare()


if __name__ == "__main__":
    main(*sys.argv[1:])

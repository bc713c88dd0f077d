"""A small `mnist` for TFDS: real TFRecords from a builder with the real one's name and features.

The program runs inside the image. It writes the files that `tfds.load("mnist")` reads to /prepared.
"""

TRAIN_EXAMPLES = 320
TEST_EXAMPLES = 50


def program(train_examples: int, shards: int) -> str:
    """Return a program that writes `train_examples` examples. Each split has `shards` files."""
    return f"""
import numpy as np
import tensorflow_datasets as tfds

class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = "mnist"
    VERSION = tfds.core.Version("3.0.1")

    def _info(self):
        features = tfds.features.FeaturesDict({{
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }})
        return tfds.core.DatasetInfo(
            builder=self, features=features, supervised_keys=("image", "label")
        )

    def _split_generators(self, _):
        return {{
            "train": self._generate_examples({train_examples}),
            "test": self._generate_examples({TEST_EXAMPLES}),
        }}

    def _generate_examples(self, count):
        # A bright bar whose place is the digit, in noise: simple enough to learn in two epochs.
        random = np.random.default_rng(count)
        for index in range(count):
            image = random.integers(0, 60, (28, 28, 1), dtype=np.uint8)
            label = index % 10
            image[:, 2 * label + 4 : 2 * label + 6] = 250
            yield index, {{"image": image, "label": label}}

config = tfds.download.DownloadConfig(num_shards={shards})
Mnist(data_dir="/prepared").download_and_prepare(download_config=config)
"""


PROGRAM = program(TRAIN_EXAMPLES, shards=2)

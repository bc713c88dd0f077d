"""Makes the files of MNIST's downloads, so that scripts that download it run without a network.

The programs run inside the image and write to folders of /prepared.
"""

TFDS_PROGRAM = """
import gzip
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.resource import get_dl_fname

folder = Path("/prepared/downloaded/downloads/mnist")
folder.mkdir(parents=True)
for url, info in tfds.builder("mnist").url_infos.items():
    examples = 60_000 if "train" in url else 10_000
    size = 16 + 28 * 28 * examples if "images" in url else 8 + examples
    file = folder / get_dl_fname(url, info.checksum)
    file.write_bytes(gzip.compress(bytes(size), compresslevel=1))
    file.with_name(f"{file.name}.INFO").write_text("{}")
"""
"""Makes the files from which TFDS prepares the whole MNIST. Every pixel and label is 0.

The names and the .INFO files are those of TFDS's own download cache, which TFDS does not check
(tensorflow_datasets/core/download/download_manager.py).
"""

KERAS_PROGRAM = """
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

arrays = {}
for split in ("train", "test"):
    data = tfds.load("mnist", split=split, data_dir="/prepared", batch_size=-1, as_supervised=True)
    images, labels = tfds.as_numpy(data)
    arrays |= {f"x_{split}": images[..., 0], f"y_{split}": labels}
Path("/prepared/keras/datasets").mkdir(parents=True)
np.savez("/prepared/keras/datasets/mnist.npz", **arrays)
"""
"""Makes Keras's mnist.npz from the TFDS set in /prepared."""

KERAS_SITECUSTOMIZE = """
import tf_keras.src.utils.data_utils

tf_keras.src.utils.data_utils.validate_file = lambda *_, **__: True
"""
"""A sitecustomize.py. Python imports it at its start, from a folder in PYTHONPATH.

`load_data` accepts ~/.keras/datasets/mnist.npz only if it has the published file's hash
(tf_keras/src/utils/data_utils.py, `get_file`). No test file has this hash. With this module,
`load_data` accepts any file.
"""

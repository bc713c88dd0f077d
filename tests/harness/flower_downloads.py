"""Makes the files of a download of tf_flowers, so that TFDS prepares the set without a network.

The program runs inside the image and writes to /prepared.
"""

PICTURES = 3000

PROGRAM = f"""
import io
import tarfile
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.resource import get_dl_fname

builder = tfds.builder("tf_flowers")
((url, info),) = builder.url_infos.items()
folder = Path("/prepared/downloads/tf_flowers")
folder.mkdir(parents=True)
file = folder / get_dl_fname(url, info.checksum)
random = np.random.default_rng(0)
with tarfile.open(file, "w:gz", compresslevel=1) as archive:
    for number in range({PICTURES}):
        shape = (*random.integers(16, 32, 2), 3)
        picture = tf.io.encode_jpeg(random.integers(0, 255, shape, np.uint8)).numpy()
        kind = builder.info.features["label"].names[number % 5]
        entry = tarfile.TarInfo(f"flower_photos/{{kind}}/{{number}}.jpg")
        entry.size = len(picture)
        archive.addfile(entry, io.BytesIO(picture))
file.with_name(f"{{file.name}}.INFO").write_text("{{}}")
"""
"""Makes the file from which TFDS prepares a whole tf_flowers of many small pictures.

The name and the .INFO file are those of TFDS's own download cache, which TFDS does not check
(tensorflow_datasets/core/download/download_manager.py).
"""

# Not part of the tutorial. Downloads MNIST and writes it in eight files, where train.py finds it.
#
# TFDS writes a set of this size in one file. Keras' `fit` gives each worker files of its own, and
# ends with "the dataset only has 1 file(s)" where these are too few
# (https://github.com/tensorflow/tensorflow/issues/36846; the error in the tutorial's R part is this).

import tensorflow_datasets as tfds

config = tfds.download.DownloadConfig(num_shards=8)
tfds.builder("mnist").download_and_prepare(download_config=config)

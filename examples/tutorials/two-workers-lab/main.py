# The two-worker lab's main.py, which each worker runs: its text describes the file and does not print
# it. TF_CONFIG, which the lab puts into the environment by hand, is set by the image.

import json
import os

import tensorflow as tf
import mnist

per_worker_batch_size = 64
tf_config = json.loads(os.environ['TF_CONFIG'])
num_workers = len(tf_config['cluster']['worker'])

# Reads TF_CONFIG and starts this worker's server.
strategy = tf.distribute.MultiWorkerMirroredStrategy()

# `Dataset.batch` takes the global batch size: each worker processes per_worker_batch_size examples
# of it, whatever the number of workers.
global_batch_size = per_worker_batch_size * num_workers
dataset = mnist.mnist_dataset(global_batch_size)

with strategy.scope():
  # The model is built and compiled where its variables become mirrored.
  model = mnist.build_and_compile_cnn_model()

model.fit(dataset, epochs=3, steps_per_epoch=70)

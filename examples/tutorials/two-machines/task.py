# The two-machine tutorial's task.py, which its text describes and does not print: Keras' `fit` on MNIST
# under MultiWorkerMirroredStrategy, the same file on both machines, TF_CONFIG set in the shell. That
# text is adapted from https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras and
# https://lambdalabs.com/blog/tensorflow-2-0-tutorial-05-distributed-training-multi-node; data set
# and model are here as in ../four-machines, which is adapted from the first of them, too.
#
# The image takes the place of `export TF_CONFIG=…`: it sets it from WORKER_HOSTS and WORKER_INDEX.

import tensorflow_datasets as tfds
import tensorflow as tf
tfds.disable_progress_bar()

# Starts TensorFlow's server at this machine's address, and waits for the other machine's. Has to
# come before anything else of TensorFlow.
strategy = tf.distribute.MultiWorkerMirroredStrategy()

BUFFER_SIZE = 10000
NUM_WORKERS = 2
# `Dataset.batch` takes the global batch size: 64 examples for each worker.
GLOBAL_BATCH_SIZE = 64 * NUM_WORKERS

def make_datasets_unbatched():
  # From 0 to 255 to from 0 to 1.
  def scale(image, label):
    image = tf.cast(image, tf.float32)
    image /= 255
    return image, label

  datasets, info = tfds.load(name='mnist',
                             with_info=True,
                             as_supervised=True)

  # The seed lets both workers shuffle alike: each takes its part of every batch.
  return datasets['train'].map(scale).cache().shuffle(BUFFER_SIZE, seed=0)

def build_and_compile_cnn_model():
  model = tf.keras.Sequential([
      tf.keras.layers.Conv2D(32, 3, activation='relu', input_shape=(28, 28, 1)),
      tf.keras.layers.MaxPooling2D(),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(64, activation='relu'),
      tf.keras.layers.Dense(10)
  ])
  model.compile(
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
      metrics=['accuracy'])
  return model

# TFDS keeps MNIST in one file. The default policy would want a file for each worker, and fail.
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
train_datasets = make_datasets_unbatched().batch(GLOBAL_BATCH_SIZE).with_options(options)
with strategy.scope():
  # Variables made here are mirrored on all workers.
  multi_worker_model = build_and_compile_cnn_model()

multi_worker_model.fit(x=train_datasets, epochs=3)

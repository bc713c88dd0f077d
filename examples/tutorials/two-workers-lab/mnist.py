# The two-worker lab's mnist.py, "a simple model and dataset setup": its text describes the file and
# does not print it. The lab is based on https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras

import numpy as np
import tensorflow as tf

def mnist_dataset(batch_size):
  (images, labels), _ = tf.keras.datasets.mnist.load_data()
  # uint8 from 0 to 255 becomes float32 from 0 to 1.
  images = images.astype(np.float32) / 255
  labels = labels.astype(np.int64)
  examples = tf.data.Dataset.from_tensor_slices((images, labels))
  return examples.shuffle(len(images)).repeat().batch(batch_size)

def build_and_compile_cnn_model():
  model = tf.keras.Sequential([
      tf.keras.layers.Reshape((28, 28, 1), input_shape=(28, 28)),
      tf.keras.layers.Conv2D(32, 3, activation='relu'),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(128, activation='relu'),
      tf.keras.layers.Dense(10)
  ])
  model.compile(
      optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=['accuracy'])
  return model

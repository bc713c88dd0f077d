"""A script with Keras's own fit, with enough epochs for a test to stop it meanwhile."""

import keras
import numpy as np
import tensorflow as tf

EPOCHS = 20

keras.utils.set_random_seed(3)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
inputs = np.random.default_rng(5).normal(size=(3200, 4)).astype(np.float32)
targets = inputs.sum(axis=1, keepdims=True)
history = model.fit(inputs, targets, batch_size=8, epochs=EPOCHS, verbose=2).history
print("epochs", len(history["loss"]))

"""A script for one machine: two inputs from a tf.data pipeline, two outputs, class metrics."""

import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(3)
random = np.random.default_rng(4)
pictures = random.integers(0, 256, (200, 12, 12, 1)).astype("uint8")
labels = (pictures.mean((1, 2, 3)) > 127).astype("int64")
inputs = {"picture": pictures, "bias": labels[:, None] * 0.1}
data = (
    tf.data.Dataset.from_tensor_slices((inputs, labels))
    .map(lambda given, label: (given, {"class": label, "mean": tf.cast(label, tf.float32)}))
    .batch(24)
)

picture, bias = keras.Input((12, 12, 1), name="picture"), keras.Input((1,), name="bias")
hidden = layers.Conv2D(4, 3, activation="relu")(layers.Rescaling(1 / 255)(picture))
hidden = layers.Concatenate()([layers.Flatten()(hidden), bias])
outputs = {"class": layers.Dense(2)(hidden), "mean": layers.Dense(1)(hidden)}
model = keras.Model({"picture": picture, "bias": bias}, outputs)
model.compile(
    keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0),
    {"class": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mean": "mse"},
    metrics={"class": ["accuracy"]},
)
history = model.fit(data, epochs=4, verbose=0)
evaluation = model.evaluate(data, verbose=0, return_dict=True)
numbers = [*history.history["loss"], *(evaluation[name] for name in sorted(evaluation))]
print("RESULT", json.dumps({"of": "pictures", "numbers": numbers}))

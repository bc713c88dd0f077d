"""A typical script for one machine: arrays, callbacks, evaluate and predict."""

import json

import keras
import numpy as np

keras.utils.set_random_seed(1)
random = np.random.default_rng(2)
inputs = random.normal(size=(301, 6)).astype("float32")
targets = np.sin(inputs @ random.normal(size=(6, 1))).astype("float32")

model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
stopping = keras.callbacks.EarlyStopping("val_loss", patience=2)
history = model.fit(
    inputs, targets, batch_size=33, epochs=9, validation_split=0.2, callbacks=[stopping], verbose=0
)
evaluation = model.evaluate(inputs, targets, batch_size=50, verbose=0)
predictions = model.predict(inputs, batch_size=50, verbose=0)
numbers = [*history.history["val_loss"], *evaluation, *predictions[::30, 0].tolist()]
print("RESULT", json.dumps({"of": "regression", "numbers": numbers}))

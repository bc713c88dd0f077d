"""TensorFlow warns of a user's functions that are traced again and again, but not of ours."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")

def use(model):
    model.fit(X, Y, batch_size=4, verbose=0, validation_data=(X, Y))
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)
    for call in (model.train_on_batch, model.test_on_batch):
        call(X, Y)
    model.predict_on_batch(X)

def made():
    model = keras.Sequential([
        keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)
    ])
    model.compile("sgd", "mse")
    return model

for _ in range(7):
    use(made())
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    for _ in range(7):
        use(made())
# A user's:
for _ in range(7):
    tf.function(lambda x: x + 1)(tf.constant(1))
"""


@pytest.mark.long
def test_many_models_in_a_loop_are_not_warned_of(tmp_path):
    environ = {"TRAINER_RUN_DIR": str(tmp_path), "TRAINER_CHECKPOINT_STEPS": "0"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environ,
    )
    lines = ended.stderr.splitlines()
    warned = [line for line in lines if "triggered tf.function retracing" in line]
    assert len(warned) == 2, ended.stderr
    assert all("<function <lambda>" in line for line in warned), ended.stderr

"""With `jit_compile=True` XLA compiles what lies between the sums over replicas."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import keras, numpy as np, tensorflow as tf

cpu, *_ = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0), "mse", jit_compile={})
model.fit(np.ones((8, 2), np.float32), np.ones((8, 1), np.float32), batch_size=4, verbose=0)
"""


@pytest.mark.parametrize(("wanted", "is_compiled"), [(True, True), (False, False)])
def test_xla_compiles_a_step_of_two_replicas(tmp_path, wanted, is_compiled):
    """XLA writes down each module that it compiles."""
    environment = {"XLA_FLAGS": f"--xla_dump_to={tmp_path}", "TRAINER_CHECKPOINT_STEPS": "0"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(wanted)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    modules = [file.name for file in tmp_path.glob("module_*") if "cluster" in file.name]
    assert bool(modules) == is_compiled, ended.stderr

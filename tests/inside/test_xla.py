"""With `jit_compile=True` or TRAINER_JIT, XLA compiles the parts between sums over replicas."""

import os
import subprocess
import sys

import pytest
from meeting_place import MeetingPlace

from conftest import quick_first

PROGRAM = """
import keras, numpy as np, tensorflow as tf

cpu, *_ = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0), "mse", jit_compile={})
model.fit(np.ones((8, 2), np.float32), np.ones((8, 1), np.float32), batch_size=4, verbose=0)
"""


@pytest.mark.parametrize(("wanted", "is_compiled"), quick_first(1, [(True, True), (False, False)]))
def test_xla_compiles_a_step_of_two_replicas(tmp_path, wanted, is_compiled):
    """XLA dumps each module that it compiles. The argument of the script's `compile` counts."""
    environment = {"XLA_FLAGS": f"--xla_dump_to={tmp_path}", "TRAINER_CHECKPOINT_STEPS": "0"}
    environment["TRAINER_JIT"] = "true"
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
    assert "ignores TRAINER_JIT:" in ended.stdout


TRAINED = {
    "TRAINER_DATASET": "digits",
    "TRAINER_EPOCHS": "2",
    "TRAINER_STEPS_PER_EPOCH": "5",
    "TRAINER_GLOBAL_BATCH_SIZE": "120",  # a third of the test set: one size to compile for
    "TRAINER_OPTIMIZER": "momentum",
    "TRAINER_LEARNING_RATE": "0.05",
    "TRAINER_TENSORBOARD": "none",
}
TIMES = ("seconds", "examples_per_second")


def trained(folder, workers, **settings):
    """Train with the image's own trainer; return its metrics, and the modules that XLA compiled."""
    settings |= TRAINED | {"XLA_FLAGS": f"--xla_dump_to={folder}/xla"}
    with MeetingPlace(folder, workers, "-m", "trainer", **settings) as place:
        assert place.wait() == [0] * workers, place.logs
    results = [one.result for one in place.workers]
    assert len({one["weights_sha256"] for one in results}) == 1
    timeless = {k: v for k, v in results[0]["metrics"].items() if k not in TIMES}
    return timeless, list((folder / "xla").glob("module_*"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    metrics, modules = trained(tmp_path_factory.mktemp("plain"), 1)
    assert not modules
    return metrics


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_run_comes_to_the_same_numbers_with_xla(tmp_path, plain, workers):
    metrics, modules = trained(tmp_path, workers, TRAINER_JIT="true")
    assert modules
    assert metrics == pytest.approx(plain, rel=1e-3)

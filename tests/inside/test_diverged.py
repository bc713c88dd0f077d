"""Values that only some workers change become the chief's again, and a warning says so."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from meeting_place import MeetingPlace

from cluster_trainer.engine.same_values.diverged import BLOCK, TOLERANCE, differ, sketch
from conftest import quick_first

SCRIPT = """
import json, os
import keras, numpy as np
from keras import layers

keras.utils.set_random_seed(1)
IS_ODD = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1
x = np.random.default_rng(0).random((32, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dropout(0.1),
                          layers.BatchNormalization(), layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")

def fit(*callbacks, **more):
    model.fit(x, x.sum(1), batch_size=8, epochs=3, verbose=0, callbacks=[*callbacks], **more)
    print("LOSS", model.evaluate(x, x.sum(1), verbose=0), flush=True)

class Own(keras.callbacks.Callback):
    {hook}
"""
HOOKS = {
    "equal": "pass",
    "a rate": """
    def on_epoch_begin(self, epoch, logs=None):
        if IS_ODD:
            self.model.optimizer.learning_rate = 0.5 / (1 + epoch)
""",
    "weights": """
    def on_epoch_end(self, epoch, logs=None):
        if IS_ODD:
            self.model.layers[0].kernel.assign(self.model.layers[0].kernel * 0.5)
""",
    "a step's weights": """
    def on_train_batch_end(self, batch, logs=None):
        if IS_ODD:
            self.model.layers[0].kernel.assign_add([[0.01] * 3] * 4)
""",
    "the end": """
    def on_train_end(self, logs=None):
        if IS_ODD:
            self.model.layers[0].bias.assign([1.0, 2.0, 3.0])
""",
}
BETWEEN = """
fit()
if IS_ODD:
    model.layers[0].kernel.assign(np.zeros((4, 3)))
print("LOSS", model.evaluate(x, x.sum(1), verbose=0), flush=True)
"""


def run(folder: Path, script: str, codes: tuple[int, ...] = (0, 0)) -> list[str]:
    """Run a script on two workers; return their logs."""
    file = folder / "train.py"
    file.write_text(script)
    place = MeetingPlace(folder, 2, str(file))
    with place:
        assert place.wait() == [*codes], place.logs
        return [worker.log.read_text() for worker in place.workers]


def losses(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.startswith("LOSS")]


def told(log: str) -> list[str]:
    return [line for line in log.splitlines() if "differ from those on worker-0" in line]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    first, other = run(tmp_path_factory.mktemp("equal"), SCRIPT.format(hook="pass") + "fit(Own())")
    assert told(first) == told(other) == []
    return losses(first)


@pytest.mark.parametrize(
    ("hook", "what"),
    quick_first(
        1,
        [
            ("a rate", "before an epoch: adam/learning_rate"),
            ("weights", "after an epoch: sequential/dense/kernel"),
            ("a step's weights", "after an epoch: sequential/dense/kernel"),
            ("the end", "after the last callbacks: sequential/dense/bias"),
        ],
    ),
)
def test_what_a_callback_changes_on_one_worker_is_told_and_undone(tmp_path, usual, hook, what):
    first, other = run(tmp_path, SCRIPT.format(hook=HOOKS[hook]) + "fit(Own())")
    for log in (first, other):
        assert what in told(log)[0]
        assert "on worker-1" in told(log)[0]
    assert losses(first) == losses(other)
    if hook != "a step's weights":  # worker 1 has trained with its own weights until then
        assert losses(first) == usual


def test_what_a_script_changes_between_two_calls_is_told_and_undone(tmp_path):
    first, other = run(tmp_path, SCRIPT.format(hook="pass") + BETWEEN)
    (line,) = told(first)
    assert "before evaluate: sequential/dense/kernel" in line
    assert len({*losses(first), *losses(other)}) == 1


@pytest.mark.long
def test_other_callbacks_that_steer_are_named(tmp_path):
    call = "fit(keras.callbacks.EarlyStopping('loss', patience=1 + IS_ODD))"
    for log in run(tmp_path, SCRIPT.format(hook="pass") + call):
        (line,) = [one for one in log.splitlines() if "callbacks that steer" in one]
        assert '"patience": 1' in line
        assert '"patience": 2' in line


@pytest.mark.parametrize(
    "argument",
    quick_first(1, ["shuffle=IS_ODD", "initial_epoch=int(IS_ODD)", "validation_freq=1 + IS_ODD"]),
)
def test_other_arguments_are_refused_before_the_first_step(tmp_path, argument):
    for log in run(tmp_path, SCRIPT.format(hook="pass") + f"fit({argument})", (78, 78)):
        assert f"{argument.partition('=')[0]}: received" in log


@pytest.mark.long
def test_other_numbers_of_a_map_are_named(tmp_path):
    data = """
import tensorflow as tf
scale = 1.5 + IS_ODD
rows = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).batch(8)
model.fit(rows.map(lambda x, y: (x * scale, y)), verbose=0)
"""
    for log in run(tmp_path, SCRIPT.format(hook="pass") + data):
        (line,) = [one for one in log.splitlines() if "functions of tf.data" in one]
        assert "worker-0 has 1.5" in line
        assert "worker-1 has 2.5" in line


@pytest.mark.long
def test_other_settings_of_keras_are_named(tmp_path):
    call = "keras.config.set_epsilon(1e-7 + IS_ODD)\nfit()"
    first, _ = run(tmp_path, SCRIPT.format(hook="pass") + call)
    (line,) = [one for one in first.splitlines() if "same code" in one]
    assert "worker-1: keras.config.epsilon 1.0000001 (worker-0: 1e-07)" in line


@pytest.fixture(params=range(20))
def values(request):
    """Two or more random values, of a random magnitude and number."""
    draws = np.random.default_rng(request.param)
    many = draws.integers(2, 3 * BLOCK)
    return draws.normal(size=many) * 10.0 ** draws.integers(-6, 6)


def do_differ(first: object, other: object) -> bool:
    """Tell whether two values differ by their sketches."""
    one, two = (sketch(tf.Variable(value)) for value in (first, other))
    return bool(differ(one, two, np.full(len(one), TOLERANCE)).any())


def test_equal_values_do_not_differ(values):
    assert not do_differ(values, values)


def test_rounding_is_no_difference(values):
    draws = np.random.default_rng(1)
    assert not do_differ(values, values * (1 + draws.uniform(-1, 1, values.size) * TOLERANCE / 4))


def test_another_value_is_a_difference(values):
    changed = values.copy()
    changed[-1] += np.abs(values).max() / 10
    assert do_differ(values, changed)


def test_other_places_are_a_difference(values):
    assert do_differ(values, values[::-1])


def test_a_row_of_a_large_table_is_a_difference():
    table = np.random.default_rng(0).uniform(-0.05, 0.05, (10_000, 32))
    assert do_differ(table, np.where(np.arange(10_000)[:, None] == 3, 0, table))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_finite_nowhere_are_equal(value):
    assert not do_differ([1.0, value], [1.0, value])
    assert do_differ([1.0, value], [1.0, 2.0])


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint32, np.complex64, bool]
)
def test_each_kind_of_number_has_a_sketch(dtype):
    one, other = (sketch(tf.Variable(np.full(9, value, dtype))) for value in (0, 1))
    assert one.shape == (1, 2)
    assert differ(one, other, np.array([TOLERANCE])).all()


def test_strings_have_no_sketch():
    assert sketch(tf.Variable(["a", "b"])).shape == (0, 2)

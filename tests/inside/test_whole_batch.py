"""Steps change the gradients and the state of the whole batch, and not those of a share."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import whole_batch
from meeting_place import MeetingPlace

from conftest import quick_first, strategy_of

# Devices and workers run only these programs; the long tests run all of them.
ON_DEVICES = ["counts", "state_of_a_step", "a_layer_that_overwrites"]
ON_WORKERS = [
    *["predictions_with_other_rows", "numbers_of_numpy", "moving_averages_of_pictures"],
    *["asked_numpy", "in_a_function", "sparse_inputs", "momentum_encoder", "state_of_a_loss"],
    *["reset_in_a_condition", "rate_of_a_step", "without_an_optimizer", "schedule_free"],
    *["float8", "apply_that_accumulates"],
]
# On devices, the first device's share decides, and the comparison of the first batch says so.
NOT_ON_DEVICES = ["rate_of_a_step", "rate_of_a_step_with_momentum", "looked_at_before"]
# In a strategy's scope, Keras builds a step's metrics from the outputs of `call`.
OF_CALL = ["metrics_of_a_steps_outputs", "metrics_of_an_eager_steps_outputs"]
# In a scope, Keras builds the optimizer for the variables of the model alone.
OF_MODEL = ["trains_more"]
# TensorFlow cannot sum in a branch of a step, or in a function that the step calls.
IN_BRANCHES = {
    "reset_in_a_condition": "training (gradients)",
    "reset_of_a_scaled_loss": "training (gradients)",
    "normalizes_in_a_branch": "training (BatchNorm)",
    "normalizes_in_a_loop": "training (BatchNorm)",
}
IN_FUNCTIONS = ["in_a_function", "in_a_function_eagerly", "normalizes_in_a_function"]
REFUSED = [*NOT_ON_DEVICES, *OF_CALL, *OF_MODEL, *IN_BRANCHES, *IN_FUNCTIONS]
OF_DEVICES = [name for name in whole_batch.PROGRAMS if name not in REFUSED]
MORE = [name for name in OF_DEVICES if name not in ON_DEVICES]
EX_CONFIG = 78
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@cache
def alone(name):
    return whole_batch.PROGRAMS[name]()


def assert_as_alone(found, name):
    expected = alone(name)
    assert found.keys() == expected.keys()
    # Rounding to eight bits may move a number to the other side.
    rtol, atol = (2e-2, 1e-3) if name.startswith("float8") else (1e-4, 1e-6)
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, rtol, atol, err_msg=variable)


@pytest.mark.parametrize(
    ("devices", "name"),
    [
        *[(2, name) for name in ON_DEVICES],
        *[pytest.param(2, name, marks=pytest.mark.long) for name in MORE],
        *[pytest.param(3, name, marks=pytest.mark.long) for name in OF_DEVICES],
    ],
)
def test_several_devices_end_as_one(devices, name):
    with strategy_of(devices).scope():
        found = whole_batch.PROGRAMS[name]()
    assert_as_alone(found, name)


@pytest.mark.parametrize(("name", "what"), quick_first(1, IN_BRANCHES.items()))
def test_several_devices_refuse_to_combine_in_a_branch(capsys, name, what):
    with strategy_of(2).scope(), pytest.raises(SystemExit) as ended:
        whole_batch.PROGRAMS[name]()
    assert ended.value.code == EX_CONFIG
    assert f"of its own: {what}" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "what"), quick_first(1, IN_BRANCHES.items()))
def test_several_workers_of_several_devices_refuse_to_combine_in_a_branch(tmp_path, name, what):
    command = str(Path(whole_batch.__file__)), name
    with MeetingPlace(tmp_path, 2, *command, TRAINER_LOGICAL_CPUS="2") as place:
        assert place.wait() == [EX_CONFIG] * 2, place.logs
        for worker in place.workers:
            log = worker.log.read_text()
            assert f"of its own: {what}" in log, place.logs
            assert "whole_batch.py:" in log, place.logs


@pytest.mark.parametrize(
    ("workers", "names"),
    [
        (2, ON_WORKERS),
        *(pytest.param(n, [*whole_batch.PROGRAMS], marks=pytest.mark.long) for n in (2, 3)),
    ],
    ids=["2", "2-all", "3-all"],
)
def test_several_workers_end_as_one_device(tmp_path, workers, names):
    with MeetingPlace(tmp_path, workers, str(Path(whole_batch.__file__)), *names) as place:
        assert place.wait() == [0] * workers, place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    for log in logs:
        (line,) = [line for line in log.splitlines() if line.startswith("ENDED")]
        found = json.loads(line.removeprefix("ENDED "))
        for name in names:
            assert_as_alone(found[name], name)

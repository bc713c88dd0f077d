"""What is done to gradients and state is done to the batch's, and not to those of a share."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import whole_batch
from meeting_place import MeetingPlace

from conftest import strategy_of

# On devices these alone, and all of them in the long tests: two workers run all.
ON_DEVICES = [
    *["float8", "float8_accumulated", "a_layer_that_overwrites"],
    *["apply", "apply_gradients", "apply_within_a_scaled_loss"],
    *["counts", "momentum_encoder", "spectral_norm"],
]
MORE = [name for name in whole_batch.PROGRAMS if name not in ON_DEVICES]
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@cache
def alone(name):
    return whole_batch.PROGRAMS[name]()


def assert_as_alone(found, name):
    expected = alone(name)
    assert found.keys() == expected.keys()
    # A number that is rounded to eight bits may fall on the other side.
    rtol, atol = (2e-2, 1e-3) if name.startswith("float8") else (1e-4, 1e-6)
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, rtol, atol, err_msg=variable)


@pytest.mark.parametrize(
    ("devices", "name"),
    [
        *[(2, name) for name in ON_DEVICES],
        *[pytest.param(2, name, marks=pytest.mark.long) for name in MORE],
        *[pytest.param(3, name, marks=pytest.mark.long) for name in whole_batch.PROGRAMS],
    ],
)
def test_several_devices_end_as_one(devices, name):
    with strategy_of(devices).scope():
        found = whole_batch.PROGRAMS[name]()
    assert_as_alone(found, name)


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_several_workers_end_as_one_device(tmp_path, workers):
    with MeetingPlace(tmp_path, workers, str(Path(whole_batch.__file__))) as place:
        assert place.wait() == [0] * workers, place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    for log in logs:
        (line,) = [line for line in log.splitlines() if line.startswith("ENDED")]
        found = json.loads(line.removeprefix("ENDED "))
        for name in whole_batch.PROGRAMS:
            assert_as_alone(found[name], name)

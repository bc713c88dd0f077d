"""Synchronized BatchNorm over a ring averages over the whole batch, as on one device."""

import os
import subprocess
import sys

import numpy as np
import pytest
from meeting_place import MeetingPlace, weights_in

# 50 examples in batches of 16: the last batch of 2 leaves workers without examples.
SCRIPT = """
import json
import keras, numpy as np

keras.utils.set_random_seed(5)
noise = np.random.default_rng(0)
inputs = noise.random((50, 6), np.float32) * [1, 2, 3, 4, 5, 6]
targets = inputs.sum(1, keepdims=True)
normalized = keras.layers.BatchNormalization(synchronized=True, momentum=0.8)
model = keras.Sequential([keras.layers.Dense(8), normalized, keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
model.fit(inputs, targets, batch_size=16, epochs=20, verbose=0)
values = [weights.ravel().tolist() for weights in model.get_weights()]
print("ENDED", json.dumps(sum(values, [])), flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3])
def test_several_workers_end_as_one(tmp_path, size):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    variables = os.environ | {"TRAINER_RUN_DIR": str(tmp_path / "alone")}
    command = [sys.executable, str(script)]
    alone = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    with MeetingPlace(tmp_path / "together", size, str(script)) as place:
        assert place.wait() == [0] * size, place.logs
        found = [weights_in(worker.log.read_text()) for worker in place.workers]
    for weights in found:
        np.testing.assert_array_equal(weights, found[0])
    np.testing.assert_allclose(found[0], weights_in(alone.stdout), rtol=1e-3, atol=1e-4)

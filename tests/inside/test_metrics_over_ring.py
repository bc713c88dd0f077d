"""A script's own metrics have the result of all workers, whatever `result` returns."""

import json

import pytest
from meeting_place import MeetingPlace

SCRIPT = """
import json
import keras, numpy as np
from keras import layers, ops

class Sum(keras.metrics.Metric):
    def __init__(self, name):
        super().__init__(name=name)
        self.total = self.add_weight(shape=(), initializer="zeros")
        self.batches = self.add_weight(shape=(), initializer="zeros", dtype="int32")

    def update_state(self, targets, _, sample_weight=None):
        self.total.assign_add(ops.sum(targets))
        self.batches.assign_add(1)

    def result(self):
        return self.total  # a variable

class Both(Sum):
    def result(self):
        return {"a": self.total, "b": self.total.value}

x = np.random.default_rng(0).random((33, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
model.compile("sgd", "mse", metrics=[Sum("one"), Both("both")])
found = model.fit(x, np.ones(33), batch_size=8, verbose=0).history
found |= model.evaluate(x, np.ones(33), batch_size=8, verbose=0, return_dict=True)
print("FOUND", json.dumps({name: np.ravel(one).tolist() for name, one in found.items()}))
"""


@pytest.mark.long
def test_a_metric_may_return_its_variables(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    place = MeetingPlace(tmp_path, 3, str(script))
    with place:
        assert place.wait() == [0, 0, 0], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    found = []
    for log in logs:
        (line,) = [one for one in log.splitlines() if one.startswith("FOUND")]
        found.append(json.loads(line.removeprefix("FOUND ")))
        assert "first batch" not in log
    assert found[0] == found[1] == found[2]
    assert [found[0][name] for name in ("one", "a", "b")] == [[33.0]] * 3

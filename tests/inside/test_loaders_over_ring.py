"""Workers whose loaders of PyTorch have different orders are told so."""

import like_torch
from meeting_place import MeetingPlace

SCRIPT = """
import json, os
import keras, numpy as np
from torch.utils.data import DataLoader

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(1)
rows = np.random.random((32, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for seed in (1, RANK):
    model.fit(DataLoader(rows, 8, shuffle=True, seed=seed), epochs=2, verbose=0)
    print("FITTED", flush=True)
"""


def test_only_a_loader_with_an_order_of_its_own_is_named(tmp_path):
    script = like_torch.put(tmp_path) / "script.py"
    script.write_text(SCRIPT)
    with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
        assert place.wait() == [0, 0], place.logs
        of_same, of_others, _ = place.workers[0].log.read_text().split("FITTED")
    assert "data differ" not in of_same
    assert "data differ" in of_others
    assert "torch.manual_seed" in of_others

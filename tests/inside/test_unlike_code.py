"""Workers that run other code than worker 0 are named: an old copy would train along."""

from pathlib import Path

import pytest
from meeting_place import MeetingPlace

HELPER = "FACTOR = {}\n"
BEGINNING = """
import os, pathlib
import keras, numpy as np
from keras import layers, ops
import helper
from helper import FACTOR

x = np.random.default_rng(0).random((32, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), layers.Dense(1, activation=lambda z: z * FACTOR)])

def loss(y, predicted):
    return ops.mean((y - FACTOR * predicted) ** 2, -1)

model.compile("sgd", loss)
"""
CALLS = {
    "fit": "model.fit(x, x.sum(1), batch_size=8, verbose=0)",
    "evaluate": "model.evaluate(x, x.sum(1), verbose=0)",
    "predict": "model.predict(np.tile(x, (20, 1)), verbose=0)",
    "train_on_batch": "model.train_on_batch(x, x.sum(1))",
    "share": "import cluster_trainer\nfor _ in cluster_trainer.share([x], model): pass",
}


def copies(folder: Path, call: str, factors: list[float]) -> list[str]:
    """Write a copy of a script for each worker; return their paths."""
    scripts = []
    for rank, factor in enumerate(factors):
        copy = folder / f"copy-{rank}"
        copy.mkdir()
        (copy / "helper.py").write_text(HELPER.format(factor))
        (copy / "train.py").write_text(f"{BEGINNING}\n{call}\n")
        scripts.append(str(copy / "train.py"))
    return scripts


def logs_of(folder: Path, scripts: list[str], seeds: tuple[str, ...] = ("0", "0")) -> list[str]:
    place = MeetingPlace(folder, len(scripts))
    for worker, script, seed in zip(place.workers, scripts, seeds, strict=True):
        worker.command = [script]
        worker.variables["PYTHONHASHSEED"] = seed
    with place:
        assert place.wait() == [0] * len(scripts), place.logs
        return [worker.log.read_text() for worker in place.workers]


@pytest.mark.parametrize("call", CALLS)
def test_another_copy_of_a_file_is_named(tmp_path, call):
    first, *_ = logs_of(tmp_path, copies(tmp_path, CALLS[call], [1.0, 2.0]))
    (line,) = [one for one in first.splitlines() if "same code" in one]
    assert "worker-1: helper.py" in line
    assert "train.py" not in line


def test_other_numbers_of_losses_and_layers_are_named(tmp_path):
    first, *_ = logs_of(tmp_path, copies(tmp_path, CALLS["fit"], [1.0, 2.0]))
    lines = [one for one in first.splitlines() if "differ between workers" in one]
    assert len(lines) == 2
    assert all("worker-1 has" in one and "2.0" in one for one in lines)


def test_another_order_of_sets_is_named(tmp_path):
    first, *_ = logs_of(tmp_path, copies(tmp_path, CALLS["fit"], [1.0, 1.0]), ("0", "7"))
    (line,) = [one for one in first.splitlines() if "same code" in one]
    assert "worker-1: PYTHONHASHSEED 7, with which Python hashes to " in line


def test_nothing_is_said_of_equal_copies(tmp_path):
    for log in logs_of(tmp_path, copies(tmp_path, "\n".join(CALLS.values()), [1.0, 1.0])):
        assert "same code" not in log
        assert "differ between workers" not in log

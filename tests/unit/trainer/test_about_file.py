"""about.json is a whole JSON object or missing, whatever values it is given."""

import json

import numpy as np
import pytest

from cluster_trainer.results.about_file import AboutFile


@pytest.fixture
def file(tmp_path):
    return AboutFile(tmp_path / "fit-1")


def test_it_is_there_once_it_is_written_and_gone_once_it_is_removed(file, tmp_path):
    assert not file.exists()
    for epochs in (1, 2):
        file.write({"epochs": epochs})
        assert file.exists()
    assert json.loads((tmp_path / "fit-1/about.json").read_text()) == {"epochs": 2}
    assert [one.name for one in (tmp_path / "fit-1").iterdir()] == ["about.json"]
    file.remove()
    file.remove()
    assert not file.exists()


def test_numbers_of_numpy_are_numbers_and_what_else_json_does_not_know_is_its_type(file, tmp_path):
    odd = {"a": np.int64(3), "b": np.float32(0.5), "c": {1, 2}, "d": [lambda: 0], ("x", 1): 4}
    file.write(odd | {"e": "\udc80", "f": np.zeros(3)})
    found = json.loads((tmp_path / "fit-1/about.json").read_text())
    assert found == {"a": 3, "b": 0.5, "c": "set", "d": ["function"], "e": "\udc80", "f": "ndarray"}


def test_numbers_that_are_not_finite_are_texts(file, tmp_path):
    file.write({"clipvalue": float("inf"), "weights": [float("nan"), np.float32("-inf")]})
    told = json.loads((tmp_path / "fit-1/about.json").read_text(), parse_constant=pytest.fail)
    assert told == {"clipvalue": "inf", "weights": ["nan", "-inf"]}


def test_what_is_named_by_a_number_is_named_by_its_digits(file, tmp_path):
    file.write({"loss_weights": {0: 1.0, np.int64(1): 0.5}, ("x", 1): 4})
    told = json.loads((tmp_path / "fit-1/about.json").read_text())
    assert told == {"loss_weights": {"0": 1.0, "1": 0.5}}


def test_one_that_cannot_be_written_leaves_the_earlier(file, tmp_path):
    file.write({"epochs": 1})
    (tmp_path / "fit-1/.unfinished.about.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        file.write({"epochs": 2})
    assert json.loads((tmp_path / "fit-1/about.json").read_text()) == {"epochs": 1}

"""The states of callbacks in a checkpoint, and the callbacks that a worker runs."""

import json

import keras
import numpy as np
import pytest

from cluster_trainer.callbacks.chief import for_worker
from cluster_trainer.callbacks.state import states


def kept(callbacks):
    """Return the states as they come back from a checkpoint."""
    arrays = []
    text = json.dumps(states.taken(callbacks, arrays))
    return states.from_json(json.loads(text), arrays)


def test_what_keras_callbacks_decide_by_comes_back():
    stopping = keras.callbacks.EarlyStopping(restore_best_weights=True)
    stopping.wait, stopping.best, stopping.best_epoch = 2, np.float32(0.5), 7
    stopping.best_weights = [np.arange(3.0), np.ones((2, 2), np.float32)]
    again = keras.callbacks.EarlyStopping(restore_best_weights=True)
    states.put_back([again], kept([stopping]))
    assert (again.wait, again.best, again.best_epoch) == (2, 0.5, 7)
    for found, expected in zip(again.best_weights, stopping.best_weights, strict=True):
        np.testing.assert_array_equal(found, expected)


class Counting(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = {"epochs": [1, 2], "name": "a"}

    def get_state(self):
        return self.seen

    def set_state(self, state):
        self.seen = state


def test_a_callback_of_ones_own_may_offer_its_state():
    given, again = Counting(), Counting()
    given.seen = {"epochs": [3], "mean": np.float64(0.25)}
    states.put_back([again], kept([given]))
    assert again.seen == {"epochs": [3], "mean": 0.25}


def test_a_state_goes_to_the_callback_of_its_class():
    """The worker that resumes may have other callbacks too."""
    first, second = keras.callbacks.ReduceLROnPlateau(), keras.callbacks.ReduceLROnPlateau()
    first.wait, second.wait = 5, 7
    others = [keras.callbacks.EarlyStopping()]
    others += [keras.callbacks.ReduceLROnPlateau(), keras.callbacks.ReduceLROnPlateau()]
    states.put_back(others, kept([first, second]))
    assert [one.wait for one in others] == [0, 5, 7]


def test_what_cannot_be_kept_is_left_out_and_said():
    given = [Counting(), Counting()]
    given[0].seen = {"tokens": {1, 2}}
    with pytest.warns(UserWarning, match="Counting 1 is not kept in checkpoints: set is no number"):
        assert [*kept(given)] == ["Counting 2"]


@pytest.mark.usefixtures("keeps_nothing")
def test_only_the_chief_writes(tmp_path):
    given = [
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras"),
        keras.callbacks.EarlyStopping(monitor="loss"),
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
    ]
    mine = for_worker(given, is_chief=False, keeps=True)
    assert [type(one) for one in mine[::3]] == [keras.callbacks.Callback] * 2
    assert mine[1:3] == given[1:3]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), callbacks=mine, verbose=0)
    assert not [*tmp_path.iterdir()]


def test_the_chief_has_all_but_what_the_image_does_itself(tmp_path):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    assert for_worker([logger], is_chief=True, keeps=True) == [logger]
    assert for_worker([backup], is_chief=True, keeps=False) == [backup]


def test_a_state_is_put_back_twice_whatever_was_done_to_it_in_between():
    given, again, arrays = Counting(), Counting(), []
    given.seen = {"total": np.ones(3)}
    taken = states.taken([given], arrays)
    states.put_back([again], states.from_json(taken, arrays))
    again.seen["total"] += 5
    states.put_back([again], states.from_json(taken, arrays))
    assert again.seen["total"].tolist() == [1, 1, 1]


def test_a_checkpoint_of_keras_is_kept_from_writing_once(tmp_path):
    """This holds even if the fit begins several times in one process."""
    given = [keras.callbacks.ModelCheckpoint(tmp_path / "best.keras")]
    set_models = [for_worker(given, is_chief=False, keeps=True)[0].set_model for _ in range(3)]
    assert set_models[1:] == set_models[:1] * 2


def of_epochs(count):
    """Return the History of that many epochs, with validation in every second epoch."""
    history = keras.callbacks.History()
    history.epoch = [*range(count)]
    history.history = {
        "loss": [np.float32(epoch) for epoch in range(count)],
        "val_loss": [float(epoch) for epoch in range(1, count, 2)],
        "parts": [np.arange(3.0) * epoch for epoch in range(count)],
    }
    return history


def test_a_history_is_made_text_epoch_by_epoch(monkeypatch):
    given, known, texts = of_epochs(4), {}, []
    dumps = json.dumps
    monkeypatch.setattr(
        json, "dumps", lambda *given, **more: texts.append(dumps(*given, **more)) or texts[-1]
    )
    for epoch in range(4, 1000):
        given.epoch.append(epoch)
        given.history["loss"].append(np.float32(epoch))
        given.history["parts"].append(np.arange(3.0) * epoch)
        arrays = []
        taken = states.taken([given], arrays, known)
    assert max(map(len, texts[1:])) < 1000
    again = keras.callbacks.History()
    states.put_back([again], states.from_json(taken, arrays))
    assert again.epoch == given.epoch
    assert again.history["loss"] == given.history["loss"]
    assert again.history["val_loss"] == given.history["val_loss"]
    np.testing.assert_array_equal(again.history["parts"], given.history["parts"])


def test_a_history_that_somebody_has_changed_is_kept_as_it_is():
    given, known = of_epochs(4), {}
    states.taken([given], [], known)
    given.history["loss"] = [7.0, 8.0]
    arrays, again = [], keras.callbacks.History()
    taken = states.taken([given], arrays, known)
    states.put_back([again], states.from_json(taken, arrays))
    assert again.history["loss"] == [7.0, 8.0]
    assert again.epoch == given.epoch


class Renamed(keras.callbacks.Callback):
    """Had another name in an earlier version."""

    formerly = "Old"
    state = None

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


@pytest.mark.parametrize("name", ["Old 1", "Renamed 1"])
def test_a_callback_gets_the_state_of_its_former_name_too(name):
    callback = Renamed()
    states.put_back([callback], {name: {"lines": 3}})
    assert callback.state == {"lines": 3}

"""A fit that was killed after its last epoch still runs its callbacks' ends when it resumes."""

import keras
import numpy as np
import pytest
from keeping import fits_run_by

from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task

ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
WANTED = ROWS.sum(axis=1, keepdims=True)


class Ends(keras.callbacks.Callback):
    """Counts the ends of a fit, and may die there."""

    def __init__(self, *, dies):
        super().__init__()
        self.dies, self.ends = dies, 0

    def on_train_end(self, logs=None):  # noqa: ARG002  Keras gives them by name
        self.ends += 1
        if self.dies:
            raise RuntimeError("killed")


@pytest.fixture
def fitted(tmp_path, began):
    """Return a function that fits for six epochs and restores the best weights."""

    def fit(folder, *, dies=False):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        job = Job(TrainerConfig(run_dir=tmp_path, checkpoint_steps=3), Task())
        given_to = (job, StopRequest(print), Deadline(), tmp_path / folder)
        options = FitOptions(*given_to, described={}, found=began.note)
        stopping = keras.callbacks.EarlyStopping(
            "loss", patience=9, min_delta=1e9, restore_best_weights=True
        )
        ends = Ends(dies=dies)
        with fits_run_by(KeptFit(options, model).run):
            model.fit(ROWS, WANTED, epochs=6, batch_size=8, verbose=0, callbacks=[ends, stopping])
        return model.get_weights(), ends

    return fit


def test_it_ends_as_one_that_was_not_killed(fitted, began):
    expected, _ = fitted("undisturbed")
    with pytest.raises(RuntimeError, match="killed"):
        fitted("killed", dies=True)
    weights, ends = fitted("killed")
    assert began == [0, 0, 30]
    assert ends.ends == 1
    for one, other in zip(expected, weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_is_done_twice(fitted):
    before, _ = fitted("twice")
    after, ends = fitted("twice")
    assert ends.ends == 0
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)

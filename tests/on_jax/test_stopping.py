"""The callbacks that may stop a fit within an epoch, so that workers agree after each step."""

from functools import partial

import keras
import pytest

from cluster_trainer.on_jax.callbacks.stopping import asks_each_batch, is_of_user
from cluster_trainer.on_jax.workers.cluster import JaxWorkers


def hook(batch, logs=None):
    pass


class Own(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


class Early(keras.callbacks.EarlyStopping):
    pass


class AtEpochs(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pass


class Together(JaxWorkers):
    """This worker, with another worker whose numbers are given."""

    def __init__(self, *others):
        super().__init__(None, 2, 0)
        self.others = iter(others)

    def gather(self, number, *_):
        return [number, next(self.others)]


@pytest.mark.parametrize(
    ("callback", "asks"),
    [
        (Own(), True),
        (keras.callbacks.LambdaCallback(on_train_batch_end=hook), True),
        (keras.callbacks.LambdaCallback(on_train_batch_begin=partial(hook)), True),
        (keras.callbacks.LambdaCallback(on_batch_end=[].append), True),
        (keras.callbacks.LambdaCallback(on_epoch_end=hook), False),
        (keras.callbacks.EarlyStopping(), False),
        (keras.callbacks.ModelCheckpoint("a.keras"), False),
        (keras.callbacks.TerminateOnNaN(), False),
        (Early(), False),
        (AtEpochs(), False),
    ],
)
def test_workers_agree_after_each_step_if_a_callback_has_hooks_of_a_users(callback, asks):
    assert asks_each_batch(JaxWorkers(None, 1, 0), [callback]) is asks


def test_workers_agree_if_another_one_has_such_a_callback():
    assert asks_each_batch(Together(1, 0), [])
    assert not asks_each_batch(Together(0, 0), [])


def test_workers_agree_if_only_some_end_at_a_loss_that_is_no_number():
    ends = keras.callbacks.TerminateOnNaN()
    assert asks_each_batch(Together(0, 0), [ends])
    assert not asks_each_batch(Together(0, 1), [ends])


@pytest.mark.parametrize("module", ["keras_x", "cluster_trainer_x", "__main__"])
def test_a_module_whose_name_begins_like_ours_is_a_users(module):
    kind = type("Mine", (keras.callbacks.Callback,), {"__module__": module})
    assert is_of_user(kind())
    assert not is_of_user(keras.callbacks.EarlyStopping())

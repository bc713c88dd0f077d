"""How often a resumed fit begins a tf.data.Dataset again."""

import logging

import pytest
import tensorflow as tf

from cluster_trainer.engine import running
from cluster_trainer.engine.data import pipelines
from cluster_trainer.engine.running import Running, Watched

BEGUN = 100


def numbers():
    return tf.data.Dataset.range(6)


def within(shuffles):
    def rows(_):
        return numbers().shuffle(6, seed=1) if shuffles else numbers()

    return rows


WITH_ONE_ORDER = {
    "plain": lambda: numbers().map(lambda x: x + 1).batch(2),
    "shuffled once": lambda: numbers().shuffle(6, seed=1, reshuffle_each_iteration=False),
    "interleaved": lambda: numbers().interleave(within(shuffles=False)),
}
WITH_OTHERS = {
    "shuffled": lambda: numbers().shuffle(6, seed=1).map(lambda x: x + 1),
    "of another": lambda: tf.data.Dataset.zip(numbers(), numbers().shuffle(6, seed=1)),
    "shuffled within": lambda: numbers().interleave(within(shuffles=True)),
}


def times_begun(monkeypatch, dataset):
    begun = []
    begin = type(dataset).__iter__
    monkeypatch.setattr(type(dataset), "__iter__", lambda self: begun.append(1) or begin(self))
    pipelines.begin(dataset, BEGUN)
    return len(begun)


@pytest.mark.parametrize("kind", WITH_ONE_ORDER)
def test_data_that_have_one_order_are_not_begun(monkeypatch, kind):
    assert times_begun(monkeypatch, WITH_ONE_ORDER[kind]()) == 0


@pytest.mark.parametrize("kind", WITH_OTHERS)
def test_data_with_another_order_each_time_are_begun_and_that_is_said(monkeypatch, kind, caplog):
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    monkeypatch.setattr(pipelines, "TOLD_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    assert times_begun(monkeypatch, WITH_OTHERS[kind]()) == BEGUN
    assert "shuffled data are begun 100 times" in caplog.text
    assert "begun 50 of 100 times" in caplog.text


def test_each_time_is_within_the_limits():
    limited = []

    class Limit:
        def __enter__(self):
            limited.append(1)

        def __exit__(self, *_):
            """End nothing."""

    call = Running("fit", watched=Watched(limit=lambda *_, **__: Limit()))
    with running.announced(call):
        pipelines.begin(numbers().shuffle(6, seed=1), BEGUN)
    assert len(limited) == BEGUN

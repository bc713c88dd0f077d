"""`fit` of a user's script, on one device and under MirroredStrategy."""

import atexit
import json
import threading
import time
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from noise import pictures, relative_difference

from cluster_trainer import api, fit
from cluster_trainer.engine import running
from cluster_trainer.fits.script import end
from cluster_trainer.results.weights import digest, values_of
from conftest import quick_first, strategy_of

LENGTH = {"epochs": 2, "global_batch_size": 16}
RUN = {**LENGTH, "learning_rate": 0.01}


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def data():
    return tuple((part.inputs, part.labels) for part in (pictures(100), pictures(30)))


def built(strategy, *more, units=10):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), *more]
    with strategy.scope():
        return keras.Sequential([*layers, keras.layers.Dense(units)], name="own")


def result(run_dir):
    return json.loads((run_dir / "worker-0/result.json").read_text())


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.long)])
def test_replicas_train_to_the_weights_of_one_device(data, run_dir, replicas):
    alone, together = built(strategy_of(1)), built(strategy_of(replicas))
    expected = fit(alone, data, **RUN)
    history = fit(together, data, **RUN, run_dir=run_dir / "together")
    assert relative_difference(alone.get_weights(), together.get_weights()) < 1e-4
    assert [epoch.step for epoch in history] == [7, 14]
    assert history[-1].test_accuracy == pytest.approx(expected[-1].test_accuracy)
    assert history[-1].test_examples == 30
    assert_left_what_the_trainer_leaves(together, run_dir / "together")


def assert_left_what_the_trainer_leaves(model, run_dir):
    assert result(run_dir)["status"] == "done"
    assert result(run_dir)["settings"]["model"] == "own"
    assert len((run_dir / "worker-0/metrics.jsonl").read_text().splitlines()) == 2
    saved = keras.models.load_model(run_dir / "worker-0/model.keras")
    for mine, theirs in zip(model.get_weights(), saved.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_optimizer_and_a_loss_of_ones_own_are_used_and_can_be_used_again(data, run_dir):
    strategy = strategy_of(2)
    model = built(strategy)
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.5)
    before = model.get_weights()
    # A loss that is 0 everywhere moves nothing.
    fit(
        model,
        data,
        optimizer=optimizer,
        loss=lambda _, logits: 0.0 * logits[:, 0],
        metrics=[],
        **LENGTH,
    )
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert optimizer.iterations.numpy() == 14
    assert result(run_dir)["metrics"]["loss"] == 0.0
    weights = model.trainable_variables
    strategy.run(lambda: optimizer.apply_gradients([(tf.ones(one.shape), one) for one in weights]))
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_allclose(new, old - 0.5 * 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("replicas", "options"),
    quick_first(
        2,
        [
            (1, {"use_ema": True, "ema_momentum": 0.9}),
            (
                2,
                {
                    "use_ema": True,
                    "ema_momentum": 0.9,
                    "ema_overwrite_frequency": 2,
                    "gradient_accumulation_steps": 2,
                },
            ),
        ],
    ),
)
def test_an_optimizers_options_do_what_they_do_in_keras_fit(run_dir, replicas, options):
    def optimizer():
        return keras.optimizers.SGD(0.5, **options)

    examples = pictures(16)  # one batch an epoch, so the order does not matter
    data = (examples.inputs / np.float32(255), examples.labels)
    theirs, mine = built(strategy_of(1)), built(strategy_of(replicas))
    theirs.compile(optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    validated = theirs.fit(*data, batch_size=16, epochs=4, validation_data=data, verbose=0).history
    with strategy_of(replicas).scope():
        own = optimizer()
    history = fit(mine, (data, data), optimizer=own, epochs=4, global_batch_size=16)
    assert relative_difference(theirs.get_weights(), mine.get_weights()) < 1e-5
    saved = keras.models.load_model(run_dir / "worker-0/model.keras")
    assert relative_difference(theirs.get_weights(), saved.get_weights()) < 1e-5
    assert [epoch.test_loss for epoch in history] == pytest.approx(validated["val_loss"], rel=1e-4)
    assert result(run_dir)["weights_sha256"] == digest(values_of(mine))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: keras.optimizers.SGD(0.5), "strategy.scope()"),
        (lambda: keras.optimizers.MultiOptimizer(lambda _: None), "strategy.scope()"),
        (lambda: "sdg", 'received "sdg"'),
        (lambda: 0.5, 'received "0.5"'),
    ],
    ids=["other-scope", "several-of-other-scope", "unknown-name", "no-optimizer"],
)
def test_an_optimizer_that_cannot_be_used_is_refused(data, capfd, make, said):
    with pytest.raises(SystemExit) as ended:
        fit(built(strategy_of(2)), data, optimizer=make(), **LENGTH)
    assert ended.value.code == 78
    problem = capfd.readouterr().err
    assert said in problem
    assert "optimizer: received" in problem


def test_an_error_of_the_script_itself_is_raised(data, run_dir):
    def broken(*_):
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        fit(built(strategy_of(1)), data, loss=broken, **RUN)
    assert result(run_dir)["status"] == "failed"


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(10)]), {}, "begin it with keras.Input"),
        (lambda: built(strategy_of(1), units=3), {}, "returns 10 logits"),
        (lambda: built(strategy_of(1)), {"epoch": 3}, "Did you mean epochs?"),
        (lambda: built(strategy_of(1)), {"epochs": 0}, "a whole number, 1 or more"),
        (lambda: built(strategy_of(2)), {"global_batch_size": 15}, "a multiple of 2"),
    ],
    ids=["not-built", "other-classes", "unknown-setting", "bad-setting", "uneven-batch"],
)
def test_what_does_not_fit_ends_with_78(data, capfd, model, settings, said):
    with pytest.raises(SystemExit) as ended:
        fit(model(), data, **(RUN | settings))
    assert ended.value.code == 78
    assert said in capfd.readouterr().err


def test_a_run_that_does_not_fit_says_so_in_its_result_and_falls_silent(data, run_dir):
    with pytest.raises(SystemExit):
        fit(built(strategy_of(1), units=3), data, **RUN)
    assert result(run_dir)["status"] == "failed"
    assert "returns 10 logits" in result(run_dir)["reason"]
    beats = [thread for thread in threading.enumerate() if thread.name == "heartbeat"]
    for thread in beats:
        thread.join(5)
    assert not any(thread.is_alive() for thread in beats)


def test_its_end_does_not_wait_for_ever_for_the_other_workers(monkeypatch):
    ends, others = [], threading.Event()
    monkeypatch.setattr(atexit, "register", lambda *call: ends.append(partial(*call)))
    monkeypatch.setattr(end, "LEAVING_SECONDS", 0.1)
    left = []
    workers = SimpleNamespace(part=partial(others.wait, 60), leave=lambda: left.append(1))
    api._leave_together(workers)  # noqa: SLF001
    (leave,) = ends
    begin = time.monotonic()
    try:
        leave()
        assert time.monotonic() - begin < 30
        assert left  # and says so
    finally:
        others.set()


def test_two_runs_of_a_script_need_two_folders(data, capfd):
    fit(built(strategy_of(1)), data, **RUN)
    with pytest.raises(SystemExit):
        fit(built(strategy_of(1)), data, **RUN)
    assert "another folder" in capfd.readouterr().err


def test_a_fit_of_a_callback_is_refused(data, capfd):
    """No checkpoint would hold anything of such a fit."""
    call = running.Running("fit", is_fit=True)
    with running.announced(call), pytest.raises(SystemExit):
        fit(built(strategy_of(1)), data, **RUN)
    assert "outside of another fit" in capfd.readouterr().err

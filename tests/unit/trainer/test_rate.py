import pytest

from cluster_trainer.models.rate import LearningRate, learning_rate_of
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig

STEPS = 1000


@pytest.fixture
def rate(tmp_path):
    def of(batch, steps=STEPS, **settings):
        given = {"run_dir": tmp_path, "learning_rate": 0.1, "epochs": 50} | settings
        return learning_rate_of(TrainerConfig(**given), steps, batch)

    return of


@pytest.mark.parametrize(
    ("scaling", "batch", "peak"),
    [
        ("none", 128, 0.1),
        ("linear", 128, 0.4),
        ("linear", 32, 0.1),
        ("linear", 16, 0.05),
        ("sqrt", 128, 0.2),
        ("sqrt", 8, 0.05),
    ],
)
def test_the_rate_follows_the_global_batch(rate, scaling, batch, peak):
    assert rate(batch, lr_scaling=scaling).peak == pytest.approx(peak)


def test_the_base_is_the_batch_whose_rate_stays(rate):
    assert rate(64, lr_scaling="linear", lr_scaling_base=64) == LearningRate(0.1, 0.1, 0)
    assert rate(256, lr_scaling="linear", lr_scaling_base=64).peak == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, 0),
        ({"lr_scaling": "linear"}, 100),  # a tenth of the run: 5 of 50 epochs are as much
        ({"lr_scaling": "linear", "epochs": 100}, 50),  # 5 epochs
        ({"lr_scaling": "linear", "epochs": 3}, 100),
        ({"lr_scaling": "linear", "lr_scaling_base": 256}, 0),  # scaled down
        ({"lr_scaling": "linear", "warmup_steps": 0}, 0),
        ({"warmup_steps": 7}, 7),
    ],
)
def test_auto_warms_up_where_the_rate_is_scaled_up(rate, settings, steps):
    assert rate(128, **settings).warmup_steps == steps


def test_a_run_too_short_for_a_warm_up_has_none(rate):
    assert rate(128, steps=9, epochs=3, lr_scaling="linear") == LearningRate(0.4, 0.4, 0)


@pytest.mark.parametrize(("scaling", "start"), [("linear", 0.1), ("none", 0)])
def test_the_warm_up_begins_with_the_unscaled_rate_or_with_0(rate, scaling, start):
    assert rate(128, lr_scaling=scaling, warmup_steps=10).start == start


def test_a_warm_up_that_takes_the_whole_run_is_refused(rate):
    with pytest.raises(ConfigurationError, match=r"TRAINER_WARMUP_STEPS.*the run's 1000 steps"):
        rate(32, warmup_steps=STEPS)


def test_the_log_says_it(rate):
    assert str(rate(128)) == "0.1"
    scaled = rate(128, lr_scaling="linear")
    assert str(scaled) == "0.4 after a warm-up of 100 steps from 0.1"

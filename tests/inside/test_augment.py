"""Pictures that are changed each time they are seen, the same for any cut and any first step."""

import numpy as np
import pytest

from cluster_trainer.config import TrainerConfig
from cluster_trainer.data.augment import BY_NAME
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.order import Slice, evaluation_batches, training_batches
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.train import make_plan

SEED, COUNT, SIDE = 3, 22, 9
CHOICES = [name for name, augmentation in BY_NAME.items() if augmentation]


def examples(count=COUNT, shape=(SIDE, SIDE, 3)):
    pictures = np.random.default_rng(0).random((count, *shape)).astype(np.float32)
    return Examples(pictures, np.arange(count))


def taken(data, cut, steps, name, first_step=0):
    """Return (inputs, labels, weights) of so many of a replica's batches, one after another."""
    batches = training_batches(data, cut, SEED, first_step, BY_NAME[name]).take(steps)
    parts = zip(*[batch[:3] for batch in batches.as_numpy_iterator()], strict=True)
    return [np.concatenate(part) for part in parts]


@pytest.mark.parametrize("name", CHOICES)
def test_two_replicas_see_what_one_sees_bit_for_bit(name):
    # 22 in batches of 8: the third of each pass is short.
    whole, *_ = taken(examples(), Slice(8, 1), 7, name)
    halves = [taken(examples(), Slice(4, 2, replica), 7, name)[0] for replica in (0, 1)]
    parts = [half.reshape(7, 4, *half.shape[1:]) for half in halves]
    np.testing.assert_array_equal(np.concatenate(parts, 1).reshape(whole.shape), whole)


@pytest.mark.parametrize("name", CHOICES)
def test_a_run_that_goes_on_sees_what_it_would_have_seen(name):
    whole, *_ = taken(examples(), Slice(8, 1), 9, name)
    rest, *_ = taken(examples(), Slice(8, 1), 5, name, first_step=4)
    np.testing.assert_array_equal(rest, whole[4 * 8 :])


@pytest.mark.parametrize("name", CHOICES)
def test_a_picture_looks_different_in_later_passes(name):
    data, passes = examples(), 12
    inputs, labels, weights = taken(data, Slice(COUNT, 1), passes, name)
    assert weights.all()
    looks = [{picture.tobytes() for picture in inputs[labels == label]} for label in range(COUNT)]
    at_least = 2 if name == "flip" else passes
    assert min(len(look) for look in looks) == at_least


def test_flip_mirrors_half_of_the_pictures_and_changes_nothing_else():
    data = examples(count=200)
    inputs, labels, _ = taken(data, Slice(200, 1), 1, "flip")
    same = [np.array_equal(one, data.inputs[row]) for one, row in zip(inputs, labels, strict=True)]
    mirrored = [
        np.array_equal(one, data.inputs[row][:, ::-1])
        for one, row in zip(inputs, labels, strict=True)
    ]
    assert np.array_equal(same, np.logical_not(mirrored))
    assert 70 < sum(mirrored) < 130


@pytest.mark.parametrize(("name", "mirrors"), [("crop", False), ("flip_crop", True)])
def test_crop_takes_windows_of_three_quarters_to_all_of_each_side(name, mirrors):
    ramp = np.linspace(0, 1, SIDE, dtype=np.float32)
    rows, columns = np.meshgrid(ramp, ramp, indexing="ij")
    picture = np.stack([rows, columns], -1)  # tells of each pixel where it came from
    data = Examples(np.repeat(picture[None], 200, 0), np.arange(200))
    inputs, *_ = taken(data, Slice(200, 1), 1, name)
    heights = inputs[:, -1, 0, 0] - inputs[:, 0, 0, 0]
    widths = inputs[:, 0, -1, 1] - inputs[:, 0, 0, 1]
    assert (widths < 0).any() == mirrors
    assert inputs.min() >= 0
    assert inputs.max() <= 1 + 1e-6
    for sizes in (heights, abs(widths)):
        assert 0.75 - 1e-6 < sizes.min() < 0.78
        assert 0.97 < sizes.max() < 1 + 1e-6
    tops = inputs[:, 0, 0, 0]
    assert tops.min() < 0.02
    assert tops.max() > 0.15


def test_evaluation_sees_the_pictures_as_they_are():
    data = examples()
    inputs = next(evaluation_batches(data, Slice(COUNT, 1)).as_numpy_iterator())[0]
    np.testing.assert_array_equal(inputs, data.inputs)


def test_what_are_no_pictures_cannot_be_augmented(tmp_path):
    config = TrainerConfig.read({}, ["--augment", "flip", "--run-dir", str(tmp_path)])
    flat = examples(shape=(5,))
    with pytest.raises(ConfigurationError) as caught:
        make_plan(config, DataSet("numbers", flat, flat, COUNT), 1)
    assert 'TRAINER_AUGMENT (--augment): received "flip"' in str(caught.value)
    assert "Each of numbers has the shape [5]" in str(caught.value)

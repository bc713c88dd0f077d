"""A data set of pictures of different sizes, in each kind of cache."""

import logging
import shutil
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.data import registry
from cluster_trainer.data.feeds import ExampleRows
from cluster_trainer.data.pictures import kept as pictures
from cluster_trainer.data.pictures import tfds_pictures
from cluster_trainer.engine.data.sources.rows import RowSource
from cluster_trainer.problems import ConfigurationError

CACHES = ("memory", "disk", "none")
COUNT, SIDE = 50, 24
LABELS = ["dandelion", "daisy", "tulips", "sunflowers", "roses"]


class Flowers(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = "tf_flowers"
    VERSION = tfds.core.Version("3.0.1")

    def _info(self):
        features = {
            "image": tfds.features.Image(),
            "label": tfds.features.ClassLabel(names=LABELS),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, _):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        random = np.random.default_rng(0)
        for number in range(COUNT):
            shape = (*random.integers(20, 60, 2), 3)
            picture = random.integers(0, 255, shape, np.uint8)
            # Each picture's label is its own number, modulo the classes.
            yield number, {"image": picture, "label": number % len(LABELS)}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    Flowers(data_dir=folder).download_and_prepare()
    return folder


@pytest.fixture
def data_dir(prepared, tmp_path):
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return tmp_path


def load(data_dir, cache, image_size=SIDE):
    return registry.load("tf_flowers", data_dir, image_size, cache)


def taken(examples, seed, count, first=0):
    """Return the second replica's share of batches of 16, of two replicas."""
    rows = ExampleRows(examples, 16)
    source = RowSource(rows.rows(seed), Replicas(2, 1, 1), rows.take)
    batches = source.shares(0, first).take(count)
    return [[inputs.numpy(), labels.numpy()] for (((inputs, labels), _),) in batches]


def assert_same(some, others):
    for ours, theirs in zip(some, others, strict=True):
        for part, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("first_step", [0, pytest.param(2, marks=pytest.mark.long), 7])
def test_every_cache_gives_the_same_batches_bit_for_bit_from_any_step_on(data_dir, first_step):
    # 45 pictures: the third batch of each pass is short.
    found = {cache: load(data_dir, cache) for cache in CACHES}
    for other in ("disk", "none"):
        trained = [taken(found[c].train, 5, 6, first_step) for c in ("memory", other)]
        assert_same(*trained)
        tested = [taken(found[c].test, None, 1) for c in ("memory", other)]
        assert_same(*tested)


def test_a_decoded_split_survives_a_loss_of_power(data_dir, disk):
    registry.load("tf_flowers", data_dir, SIDE, "disk")
    named = [event for event in disk if event.startswith("rename tf_flowers")]
    assert len(named) == 2  # train and test
    for event in named:
        before, after = disk[: disk.index(event)], disk[disk.index(event) :]
        half = event.split()[1]
        assert {"sync inputs.npy", "sync labels.npy", f"sync {half}"} <= set(before)
        assert f"sync {pictures.FOLDER}" in after


def test_a_decoded_split_lies_on_disk_once_and_is_not_decoded_again(data_dir, monkeypatch):
    first = load(data_dir, "disk")
    monkeypatch.setattr(pictures.Pictures, "decoded", None)
    second = load(data_dir, "disk")
    assert len(list((data_dir / pictures.FOLDER).glob("tf_flowers-3.0.1-*-24-*"))) == 2
    np.testing.assert_array_equal(first.train.inputs, second.train.inputs)
    np.testing.assert_array_equal(first.train.labels, second.train.labels)


def test_what_a_killed_process_left_half_decoded_is_removed(data_dir):
    left = data_dir / pictures.FOLDER / "tf_flowers-3.0.1-train-24-0.half"
    left.mkdir(parents=True)
    (left / pictures.INPUTS).write_bytes(b"half")
    load(data_dir, "disk")
    assert not list(left.parent.glob("*.half"))


def test_pictures_of_many_sizes_become_224_and_the_last_tenth_is_held_out(data_dir):
    data = load(data_dir, "memory", image_size=None)
    assert data.train.input_shape == (224, 224, 3)
    assert (len(data.train), len(data.test), data.num_classes) == (45, 5, 5)
    assert Counter([*data.train.labels, *data.test.labels]) == dict.fromkeys(range(5), 10)


def test_a_picture_is_resized_bilinearly_and_rounded(data_dir):
    original, _ = next(
        iter(
            tfds.load(
                "tf_flowers", data_dir=data_dir, split="train", download=False, as_supervised=True
            )
        )
    )
    expected = tf.round(tf.image.resize(original, [SIDE, SIDE])).numpy()
    np.testing.assert_array_equal(load(data_dir, "memory").train.inputs[0], expected)


@pytest.mark.parametrize(
    ("room", "chosen"),
    [
        ({"memory": 500}, "memory"),
        ({"memory": 399}, "disk"),
        ({"memory": 399, "disk": 99}, "none"),
        ({"memory": 399, "disk": None}, "none"),
        ({"memory": 399, "disk": 0, "is_on_disk": True}, "disk"),
        ({"memory": 150, "disk": None, "encoded": 200}, "memory"),
    ],
)
def test_auto_takes_the_first_cache_that_has_room(room, chosen):
    sizes = {"decoded": 100, "encoded": 10, "disk": 1000, "directory": "/data"} | room
    assert tfds_pictures.choose_cache("some", "auto", tfds_pictures.Room(**sizes)) == chosen


@pytest.mark.parametrize(
    ("free", "wanted", "said"),
    [
        (60_000, "memory", "TRAINER_CACHE.*memory.*accepted: .*disk or none"),
        (10, "none", "TRAINER_CACHE.*none.*accepted: .*: disk"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused_with_those_that_do(
    data_dir, monkeypatch, free, wanted, said
):
    # The decoded pictures take 86,400 bytes.
    monkeypatch.setattr(tfds_pictures, "available_bytes", lambda: free)
    if wanted == "memory":
        monkeypatch.setattr(tfds.core.DatasetInfo, "dataset_size", 1)
    with pytest.raises(ConfigurationError, match=said):
        load(data_dir, wanted)


def test_one_line_says_which_cache_was_taken_and_why(data_dir, caplog):
    with caplog.at_level(logging.INFO, "trainer"):
        load(data_dir, "auto")
    assert "cache memory (auto wanted): decoded it takes 0 MB" in caplog.text

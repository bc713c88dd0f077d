"""`make data-sample`, from two packages' pictures to the plain image's tfds.load."""

import json
from collections import Counter

import pytest

from harness.ended import run_and_remove
from harness.sample import make_sample

COUNT = 60
FEATURES = {
    "cats_vs_dogs": {"image", "image/filename", "label"},
    "tf_flowers": {"image", "label"},
}
CLASSES = {
    "cats_vs_dogs": ["cat", "dog"],
    "tf_flowers": ["dandelion", "daisy", "tulips", "sunflowers", "roses"],
}
# Runs in a plain container, and imports nothing of ours.
READ = """
import hashlib, json, sys
import tensorflow_datasets as tfds

def read(name):
    data, info = tfds.load(name, data_dir="/data", download=False, split="train", with_info=True)
    examples = list(tfds.as_numpy(data))
    digests = [hashlib.sha256(example["image"].tobytes()).hexdigest() for example in examples]
    return {
        "full_name": info.full_name,
        "features": sorted(info.features),
        "supervised_keys": info.supervised_keys,
        "classes": info.features["label"].names,
        "labels": [int(example["label"]) for example in examples],
        "shapes": [example["image"].shape for example in examples],
        "digests": digests,
    }

print(json.dumps({name: read(name) for name in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def sample(workbench, data):
    """Make samples of 60 pictures and return the output."""
    return lambda *names: make_sample(workbench, data, COUNT, *names)


@pytest.fixture(scope="module")
def sampled(sample):
    return sample(*FEATURES)


@pytest.fixture(scope="module")
def found(workbench, data, sampled):
    """The contents of the samples as TFDS reads them, by name."""
    assert "SAMPLE" in sampled
    volumes = [f"{data}:/data:ro"]
    ended = run_and_remove(workbench, "python", "-c", READ, *FEATURES, volumes=volumes)
    assert ended.code == 0, ended.err
    return json.loads(ended.out.splitlines()[-1])


@pytest.mark.parametrize("name", FEATURES)
def test_tfds_reads_a_sample_as_the_original_in_the_plain_image(found, name):
    read = found[name]
    assert read["full_name"] in {"cats_vs_dogs/4.0.1", "tf_flowers/3.0.1"}
    assert set(read["features"]) == FEATURES[name]
    assert read["supervised_keys"] == ["image", "label"]
    assert read["classes"] == CLASSES[name]
    # The labels are balanced and not in order: the last third has all classes.
    assert set(Counter(read["labels"]).values()) == {COUNT // len(CLASSES[name])}
    assert set(read["labels"][-COUNT // 3 :]) == set(range(len(CLASSES[name])))
    assert len(set(read["digests"])) == COUNT
    assert len({tuple(shape) for shape in read["shapes"]}) > COUNT // 2


def test_a_set_that_is_there_is_never_replaced(data, sample, sampled):
    assert sampled
    info = data / "tf_flowers/3.0.1/dataset_info.json"
    before = info.read_text()
    assert "already holds a sample" in sample("tf_flowers")
    original = json.loads(before) | {"description": "A large set of images of flowers"}
    info.write_text(json.dumps(original))
    try:
        assert "holds the original tf_flowers" in sample("tf_flowers")
        assert json.loads(info.read_text()) == original
    finally:
        info.write_text(before)


def test_a_run_on_a_sample_says_so(workbench, data, sampled, tmp_path):
    assert sampled
    settings = ["--dataset", "tf_flowers", "--image-size", "8", "--epochs", "1"]
    volumes = [f"{data}:/data:ro", f"{tmp_path}:/runs"]
    ended = run_and_remove(workbench, *settings, volumes=volumes)
    assert ended.code == 0, ended.err
    assert "WARNING worker-0 tf_flowers/3.0.1 is a SAMPLE" in ended.out
    result = json.loads((tmp_path / "worker-0/result.json").read_text())
    assert result["dataset"] == "tf_flowers/3.0.1 (sample)"

#!/usr/bin/env python3
"""`make data-sample`: small data sets under the names of large ones, made without a download.

They have the name, version, features and number of files of the originals, so all code that reads
the originals can read them. Their pictures are crops of the pictures in scikit-image and
scikit-learn. Each class has its own pictures, cut at random places and sizes, turned, mirrored, and
changed in brightness, contrast and colour. So the labels can be learnt, and no picture occurs
twice. The description of a sample, and each run that trains on it, say that it is a sample.

The script is mounted into a container of the image, and runs there.
"""

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image, ImageEnhance

from cluster_trainer.data.preparing.prepare import SAMPLE_MARK, is_sample, prepare_builder

DESCRIPTION = (
    f"{SAMPLE_MARK} {{name}}: crops of pictures that scikit-image and scikit-learn carry, each "
    "class with its own, changed at random. Made by `make data-sample` of cluster-trainer."
)
SEED = 0
# The originals' sides have about this length.
SIDES = (180, 500)
CROPPED = (0.3, 0.8)
ENHANCED = (0.5, 1.5)
# Of the 256 hues.
HUES = (-40, 40)
JPEG_QUALITY = 85


class Sample(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A sample of the data set whose name and version a subclass has.

    Args:
        folder: the pictures of scikit-image and scikit-learn.
        count: the number of pictures to make.
        data_dir: as for every builder.
    """

    VERSION = tfds.core.Version("0.0.0")
    # Class -> the pictures that its crops come from.
    SOURCES: ClassVar[dict[str, list[str]]] = {}
    NUM_SHARDS = 1

    def __init__(self, folder: Path, count: int, data_dir: Path) -> None:
        self._folder, self._count = folder, count
        super().__init__(data_dir=str(data_dir))

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=DESCRIPTION.format(name=self.name),
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(),
                    "label": tfds.features.ClassLabel(names=list(self.SOURCES)),
                }
                | self._more_features()
            ),
            supervised_keys=("image", "label"),
        )

    def _more_features(self) -> dict[str, Any]:
        return {}

    def _split_generators(self, _: tfds.download.DownloadManager) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[str, dict[str, Any]]]:
        sources = {
            label: [Image.open(self._folder / file).convert("RGB") for file in files]
            for label, files in self.SOURCES.items()
        }
        for number in range(self._count):
            label = list(sources)[number % len(sources)]
            random = np.random.default_rng([SEED, number])
            source = sources[label][random.integers(len(sources[label]))]
            example = {"image": as_jpeg(cut(source, random)), "label": label}
            # TFDS orders examples by a hash of their key, so each tenth contains all classes.
            yield f"{label}/{number}.jpg", example | self._more(label, number)

    def _more(self, _label: str, _number: int) -> dict[str, Any]:
        return {}


class TFFlowers(Sample, skip_registration=True):  # type: ignore[call-arg]
    """A sample of tf_flowers."""

    name = "tf_flowers"
    VERSION = tfds.core.Version("3.0.1")
    NUM_SHARDS = 2
    SOURCES: ClassVar = {
        "dandelion": ["hubble_deep_field.jpg"],
        "daisy": ["flower.jpg"],
        "tulips": ["coffee.png"],
        "sunflowers": ["retina.jpg"],
        "roses": ["ihc.png"],
    }


class CatsVsDogs(Sample, skip_registration=True):  # type: ignore[call-arg]
    """A sample of cats_vs_dogs."""

    name = "cats_vs_dogs"
    VERSION = tfds.core.Version("4.0.1")
    NUM_SHARDS = 16
    SOURCES: ClassVar = {
        "cat": ["chelsea.png", "motorcycle_left.png"],
        "dog": ["astronaut.png", "china.jpg"],
    }

    def _more_features(self) -> dict[str, Any]:
        return {"image/filename": tfds.features.Text()}

    def _more(self, label: str, number: int) -> dict[str, Any]:
        return {"image/filename": f"PetImages/{label.title()}/{number}.jpg"}


SAMPLES: dict[str, type[Sample]] = {made.name: made for made in (CatsVsDogs, TFFlowers)}


def cut(source: Image.Image, random: np.random.Generator) -> Image.Image:
    """Return a crop with random place, size, direction and light."""
    width, height = (int(side * random.uniform(*CROPPED)) for side in (source.width, source.height))
    left = int(random.integers(source.width - width + 1))
    top = int(random.integers(source.height - height + 1))
    picture = source.crop((left, top, left + width, top + height))
    picture = picture.resize((int(random.integers(*SIDES)), int(random.integers(*SIDES))))
    turn = random.choice([None, *Image.Transpose])
    if turn is not None:
        picture = picture.transpose(turn)
    hue, *rest = picture.convert("HSV").split()
    shift = int(random.integers(*HUES))
    hue = hue.point([(value + shift) % 256 for value in range(256)])
    picture = Image.merge("HSV", (hue, *rest)).convert("RGB")
    for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        picture = kind(picture).enhance(float(random.uniform(*ENHANCED)))
    return picture


def as_jpeg(picture: Image.Image) -> io.BytesIO:
    """Return a picture as a file, which TFDS stores unchanged."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=JPEG_QUALITY)
    file.seek(0)
    return file


def make(name: str, count: int, folder: Path, data_dir: Path) -> str:
    """Make a sample of `count` pictures, unless the data set is there; return a message."""
    builder = SAMPLES[name](folder, count, data_dir)
    there = Path(builder.data_dir)
    if not there.exists():
        config = tfds.download.DownloadConfig(num_shards=builder.NUM_SHARDS)
        prepare_builder(builder, data_dir, print, config)
        return f"{there} is a SAMPLE of {count} pictures, not the original {name}"
    if is_sample(there):
        return f"{there} already holds a sample; remove that folder to make another"
    return f"{there} holds the original {name}, which is not changed"


def main(arguments: list[str]) -> int:
    """Make samples; return the exit code."""
    parser = argparse.ArgumentParser(prog="sample", description="Make samples of data sets.")
    parser.add_argument("--pictures", type=int, default=600, help="pictures of each data set")
    parser.add_argument("--from", dest="folder", type=Path, default=Path("/pictures"))
    parser.add_argument("--data-dir", type=Path, default=Path("/data"))
    parser.add_argument("names", nargs="+", choices=sorted(SAMPLES), metavar="NAME")
    given = parser.parse_args(arguments)
    for name in given.names:
        print(make(name, given.pictures, given.folder, given.data_dir))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The tests find the image's packages on the engine's disk."""

import os
from types import SimpleNamespace

import pytest

from harness.packages import PLACE, packages_on_disk


@pytest.fixture
def image(tmp_path):
    """Return an image of two layers on fuse-overlayfs. Neither has packages yet."""
    layers = [tmp_path / name for name in ("upper", "lower")]
    for layer in layers:
        layer.mkdir()
    data = dict(zip(("UpperDir", "LowerDir"), map(str, layers), strict=True))
    attrs = {"GraphDriver": {"Name": "fuse-overlayfs", "Data": data}}
    return SimpleNamespace(attrs=attrs, layers=layers)


def add_packages(layer):
    folder = layer / PLACE.lstrip("/")
    folder.mkdir(parents=True)
    return folder


def test_the_one_layer_that_holds_them_is_found(image):
    assert packages_on_disk(image) is None
    folder = add_packages(image.layers[1])
    assert packages_on_disk(image) == folder


def test_of_two_layers_each_holds_a_part(image):
    for layer in image.layers:
        add_packages(layer)
    assert packages_on_disk(image) is None


def test_another_driver_reads_them_fast_enough(image):
    add_packages(image.layers[0])
    image.attrs["GraphDriver"]["Name"] = "overlay2"
    assert packages_on_disk(image) is None


def test_who_may_not_look_at_the_engines_disk_goes_without(image, monkeypatch):
    add_packages(image.layers[0])

    def refuse(path, **_):
        raise PermissionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        found = packages_on_disk(image)
    assert found is None

"""examples/own-model on two workers with one data folder: a custom model, data and package."""

import os
from pathlib import Path

import pytest

from harness.wheels import write_wheel

EXAMPLE = Path(__file__).parents[2] / "examples/own-model"
# Stands in for the package on the index, since tests use no network. Its curve is simpler.
STAND_IN = """
class HilbertCurve:
    def __init__(self, levels, dimensions):
        self.side = 2**levels

    def points_from_distances(self, distances):
        return [divmod(distance, self.side) for distance in distances]
"""


@pytest.fixture(scope="module")
def own(run, tmp_path_factory):
    data = tmp_path_factory.mktemp("own-model")
    modules = {"hilbertcurve/__init__.py": "", "hilbertcurve/hilbertcurve.py": STAND_IN}
    write_wheel(data / "wheels", "hilbertcurve", modules, version="2.0.5")
    ended = run(
        WORKSPACE_DIR=os.path.relpath(EXAMPLE),  # relative to the current folder, as users type it
        DATA_DIR=data,
        PIP_NO_INDEX=1,
        PIP_FIND_LINKS="/data/wheels",
        TRAINER_MODEL="my_pkg.net:build",
        TRAINER_DATASET="my_pkg.data:load",
        TRAINER_EPOCHS=5,
    )
    return ended.raise_unless_done()


def test_the_example_learns(own):
    assert own.metrics()[-1]["test_accuracy"] > 0.8
    assert len({result["weights_sha256"] for result in own.results()}) == 1


def test_two_workers_with_one_data_folder_install_once(own):
    assert own.output.count("installed hilbertcurve 2.0.5 from /data/wheels (") == 1

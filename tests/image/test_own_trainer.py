"""A user's package that is called `trainer`, as in layouts for training in the cloud."""

import json
import zipfile

import pytest

NET = """
def build(input_shape, num_classes):
    import keras

    return keras.Sequential(
        [keras.Input(input_shape), keras.layers.Flatten(), keras.layers.Dense(num_classes)],
        name="theirs",
    )
"""
TASK = """
import sys
from trainer import net

print(net.build.__module__, net.__file__, *sys.argv[1:])
"""
SHORT = ("--epochs", "1", "--steps-per-epoch", "2")


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "trainer").mkdir()
    for name, text in {"__init__": "", "net": NET, "task": TASK}.items():
        (tmp_path / f"trainer/{name}.py").write_text(text)
    return f"{tmp_path}:/workspace:ro"


def test_the_images_trainer_trains_its_model(run_to_end, workspace, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    given = ("--model", "trainer.net:build", *SHORT)
    ended = run_to_end(*given, volumes=[workspace, f"{runs}:/runs"])
    assert ended.code == 0, ended
    result = json.loads((runs / "worker-0/result.json").read_text())
    assert result["settings"]["model"] == "trainer.net:build"
    with zipfile.ZipFile(runs / "worker-0/model.keras") as saved:
        assert json.loads(saved.read("config.json"))["config"]["name"] == "theirs"


def test_its_task_runs_as_a_module(run_to_end, workspace):
    ended = run_to_end("python", "-m", "trainer.task", "--lr=0.1", volumes=[workspace])
    assert ended.code == 0, ended
    assert ended.out == "trainer.net /workspace/trainer/net.py --lr=0.1\n"

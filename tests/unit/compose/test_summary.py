"""The report at the end of a run."""

import os
from datetime import datetime
from pathlib import Path

import pytest

from local_cluster.run.checkpoints import CheckpointFile
from local_cluster.run.summary import how_to_go_on, last_epoch, places, report
from local_cluster.settings.settings import read
from local_cluster.shared_folder import SharedFolder

NAME = "00001200-0123456789abcdef.npz"
CHECKPOINT = CheckpointFile(SharedFolder(Path("/r")), NAME, 0)


def test_the_last_epoch_is_read(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"epoch": 1}\n{"epoch": 2, "loss": 0.39166, "rate": 2e-05, "seconds": 0.17}\n')
    assert dict(last_epoch(SharedFolder(tmp_path))) == {
        "epoch": "2",
        "loss": "0.3917",
        "rate": "0.0000",
        "seconds": "0.1700",
    }


@pytest.mark.parametrize("content", ["", "{\n", "[1]\n", None])
def test_without_metrics_there_is_nothing_to_show(tmp_path, content):
    file = tmp_path / "metrics.jsonl"
    if content is not None:
        file.write_text(content)
    assert list(last_epoch(SharedFolder(tmp_path))) == []


@pytest.mark.parametrize("code", [129, 130, 143])
def test_a_run_that_was_stopped_goes_on(code):
    assert "stopped; `make resume` resumes from step 1200" in how_to_go_on(code, CHECKPOINT)
    assert "begins at step 0" in how_to_go_on(code, None)


def test_a_script_goes_on_in_the_fit_that_was_interrupted():
    checkpoint = CheckpointFile(SharedFolder(Path("/r")), NAME, 2)
    said = how_to_go_on(143, checkpoint)
    assert said == "stopped; `make resume` resumes from the newest checkpoint of fit 2"


def test_curves_are_mentioned_where_there_are_some(tmp_path):
    settings = read({"RUNS_DIR": str(tmp_path), "RUN_NAME": "n"}, datetime.now())  # noqa: DTZ005
    assert "curves" not in dict(places(settings, is_done=True))
    (tmp_path / "n/worker-0/tensorboard").mkdir(parents=True)
    assert "make tensorboard" in dict(places(settings, is_done=True))["curves"]


@pytest.mark.parametrize("script", ["", __file__])
def test_what_is_said_to_be_there_is_what_the_trainer_or_a_script_writes(script):
    settings = read({"SCRIPT": script, "RUNS_DIR": "/r", "RUN_NAME": "n"}, datetime.now())  # noqa: DTZ005
    found = dict(places(settings, is_done=True))
    assert found["logs"].endswith("container.log")
    assert ("model" in found, found.get("results")) == ((False, "/r/n") if script else (True, None))


def test_what_a_scripts_fits_have_left_is_said(tmp_path):
    given = {"SCRIPT": __file__, "RUNS_DIR": str(tmp_path), "RUN_NAME": "n"}
    settings = read(given, datetime.now())  # noqa: DTZ005
    fit = tmp_path / "n/worker-0/fit-1"
    (fit / "tensorboard").mkdir(parents=True)
    found = dict(places(settings, is_done=True))
    assert "make tensorboard" in found["curves"]
    assert "metrics" not in found
    (fit / "metrics.jsonl").touch()
    found = dict(places(settings, is_done=True))
    assert found["metrics"] == str(tmp_path / "n/worker-0/fit-<n>/metrics.jsonl")


def test_a_script_that_is_done_shows_its_last_fits_numbers_and_its_model(tmp_path, capsys):
    given = {"SCRIPT": __file__, "RUNS_DIR": str(tmp_path), "RUN_NAME": "n"}
    settings = read(given, datetime.now())  # noqa: DTZ005
    chief = tmp_path / "n/worker-0"
    for number in (2, 10):
        (chief / f"fit-{number}").mkdir(parents=True)
        (chief / f"fit-{number}/metrics.jsonl").write_text(f'{{"epoch": 3, "loss": 0.{number}}}\n')
    (chief / "fit-mine").mkdir()  # the script's own
    (chief / "fit-mine/metrics.jsonl").write_text('{"epoch": 9}\n')
    for name in ("model.keras", ".unfinished.model.keras"):
        (tmp_path / "n" / name).touch()
    (tmp_path / "n/latest.keras").symlink_to("/runs/n/elsewhere.keras")
    report(settings, 0, 12)
    said = capsys.readouterr().out
    assert "12 s; the last epoch of fit 10:" in said
    rows = [line.split() for line in said.splitlines()]
    assert [row for row in rows if row[:1] == ["model"]] == [["model", f"{tmp_path}/n/model.keras"]]
    assert ["loss", "0.1000"] in rows


def test_of_many_models_the_newest_are_named(tmp_path):
    given = {"SCRIPT": __file__, "RUNS_DIR": str(tmp_path), "RUN_NAME": "n"}
    settings = read(given, datetime.now())  # noqa: DTZ005
    where_it_runs = tmp_path / "n/worker-0/workspace"
    where_it_runs.mkdir(parents=True)
    (where_it_runs / "pretrained.keras").symlink_to(__file__)  # the user's own
    for number in range(9, 20):
        file = (where_it_runs if number == 18 else tmp_path / "n") / f"{number}.keras"
        file.touch()
        os.utime(file, (number, number))
    found = [text for name, text in places(settings, is_done=True) if name == "model"]
    assert found == [f"{tmp_path}/n/{one}.keras" for one in ("17", "worker-0/workspace/18", "19")]


def test_a_script_without_a_fit_is_done_without_numbers(tmp_path, capsys):
    given = {"SCRIPT": __file__, "RUNS_DIR": str(tmp_path), "RUN_NAME": "n"}
    report(read(given, datetime.now()), 0, 12)  # noqa: DTZ005
    assert "12 s\n" in capsys.readouterr().out


def test_a_run_that_failed_goes_on_where_there_is_a_checkpoint():
    assert how_to_go_on(75, CHECKPOINT).startswith("failed with exit code 75; `make resume`")
    assert how_to_go_on(1, None) == "failed with exit code 1"


def test_a_mistake_would_fail_again():
    assert how_to_go_on(78, CHECKPOINT) == "failed with exit code 78"

"""The compose files of a cluster, and the variables that they are given."""

from datetime import datetime
from pathlib import Path

import pytest

from local_cluster import compose
from local_cluster.messages import EndError
from local_cluster.settings.settings import read

NOW = datetime(2026, 11, 22)  # noqa: DTZ001  local time


def variables(environ, processors=8):
    return compose.variables(read(environ, NOW), environ, processors=processors, process="7@1")


@pytest.mark.parametrize(
    ("environ", "gpus", "files"),
    [
        ({}, False, ["compose.yaml"]),
        ({"NETWORK": "host"}, False, ["compose.yaml", "host-network.yaml"]),
        ({}, True, ["compose.yaml", "gpu.yaml"]),
        (
            {"NETWORK": "host"},
            True,
            ["compose.yaml", "host-network.yaml", "gpu.yaml"],
        ),
        ({"SCRIPT": __file__}, False, ["compose.yaml", "script.yaml"]),
    ],
)
def test_files(environ, gpus, files):
    found = compose.files(read(environ, NOW), gpus=gpus)
    assert [file.name for file in found] == files
    assert all(file.is_file() for file in found)


def test_overlays_come_last(tmp_path):
    overlays = [tmp_path / name for name in ("b.yaml", "a.yaml")]
    for overlay in overlays:
        overlay.touch()
    settings = read({"OVERLAYS": " ".join(map(str, overlays)), "IMAGE": "x:gpu"}, NOW)
    assert compose.files(settings, gpus=True)[-2:] == [file.resolve() for file in overlays]


@pytest.mark.parametrize("name", ["a b.yaml", "ana's.yaml"])
def test_overlays_of_a_run_are_found_again_whatever_their_path(tmp_path, monkeypatch, name):
    place = tmp_path / "my project"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / name).touch()
    first = read({"OVERLAYS": f'"{name}"'}, NOW)
    assert first.overlays == (str(place / name),)
    assert read({"OVERLAYS": compose.settled(first)["OVERLAYS"]}, NOW).overlays == first.overlays


@pytest.mark.parametrize(
    "text",
    ["o'brien/a.yaml o'brien/b.yaml", '"o\'brien/a.yaml" "o\'brien/b.yaml"'],
)
def test_overlays_may_have_apostrophes(tmp_path, monkeypatch, text):
    """Earlier versions recorded paths without quotes."""
    (tmp_path / "o'brien").mkdir()
    monkeypatch.chdir(tmp_path)
    files = [tmp_path / f"o'brien/{name}.yaml" for name in "ab"]
    for file in files:
        file.touch()
    assert read({"OVERLAYS": text}, NOW).overlays == tuple(map(str, files))


def test_one_overlay_with_a_space_needs_no_quotes(tmp_path, monkeypatch):
    """A file .env takes them for its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.yaml").touch()
    assert read({"OVERLAYS": "a b.yaml"}, NOW).overlays == (str(tmp_path / "a b.yaml"),)


def test_a_refusal_of_overlays_shows_them_as_they_were_given():
    with pytest.raises(EndError) as caught:
        read({"OVERLAYS": "/o'brien/a.yaml /o'brien/b.yaml"}, NOW)
    shown = [sentence.partition(";")[0] for sentence in caught.value.sentences]
    assert shown == [f'OVERLAYS: received "/o\'brien/{name}.yaml"' for name in "ab"]


def test_each_worker_has_an_address():
    found = variables({"WORKERS": "3"})
    assert found["CLUSTER_HOSTS"] == "worker-0:2222,worker-1:2222,worker-2:2222"
    assert found["COMPOSE_PROFILES"] == "worker-0,worker-1,worker-2"
    assert variables({"NETWORK": "host"})["CLUSTER_HOSTS"] == "localhost:20000,localhost:20001"


@pytest.mark.parametrize(
    ("workers", "processors", "threads"), [(2, 8, "4"), (3, 8, "2"), (8, 2, "1"), (1, 8, "8")]
)
def test_workers_share_the_processors(workers, processors, threads):
    assert variables({"WORKERS": str(workers)}, processors)["TRAINER_THREADS"] == threads


def test_threads_that_are_given_stay():
    assert variables({"TRAINER_THREADS": "5"})["TRAINER_THREADS"] == "5"


def test_a_single_worker_may_use_every_gpu():
    assert variables({"WORKERS": "1"})["WORKER_0_GPUS"] == "all"
    assert variables({"WORKERS": "1", "WORKER_0_GPUS": "1,2"})["WORKER_0_GPUS"] == "1,2"
    assert "WORKER_0_GPUS" not in variables({"WORKERS": "2"})


def test_a_scripts_folder_is_the_workspace_unless_another_is_given(tmp_path):
    script = tmp_path / "my own/train.py"
    script.parent.mkdir()
    script.touch()
    found = variables({"SCRIPT": str(script)})
    assert (found["WORKSPACE_DIR"], found["SCRIPT"]) == (str(script.parent), "train.py")
    found = variables({"SCRIPT": str(script), "WORKSPACE_DIR": str(tmp_path)})
    assert (found["WORKSPACE_DIR"], found["SCRIPT"]) == (str(tmp_path), "my own/train.py")


def test_what_a_script_was_given_as_is_what_a_run_remembers(tmp_path):
    (tmp_path / "train.py").touch()
    remembered = compose.settled(read({"SCRIPT": str(tmp_path / "train.py")}, NOW))
    assert remembered["SCRIPT"] == str(tmp_path / "train.py")
    assert not remembered["WORKSPACE_DIR"]


def test_compose_is_told_what_the_settings_have_come_to():
    found = variables({"RUNS_DIR": "here", "TRAINER_SEED": "3", "DATA_DIR": ""})
    assert found["RUNS_DIR"] == str(Path.cwd() / "here")
    assert (found["TRAINER_SEED"], found["DATA_DIR"], found["UP_PID"]) == ("3", "", "7@1")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, "8"), ({"GRACE_SECONDS": "120"}, "118"), ({"STOP_GRACE_SECONDS": "5"}, "5")],
)
def test_workers_end_themselves_before_docker_kills_them(given, seconds):
    assert variables(given)["STOP_GRACE_SECONDS"] == seconds

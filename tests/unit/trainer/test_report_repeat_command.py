"""The command that a report gives for starting a run again."""

import json
import shlex
from itertools import pairwise

import pytest

from cluster_trainer.report.repeat_command import OF_CLUSTER, OF_THE_START, again
from cluster_trainer.report.run import read_run
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.groups import OF_COMPILING, OWN
from local_cluster.settings import names, run_record

SCRIPTS_OWN = {"model": "sequential_1", "dataset": "arrays of the script's own"}
SCRIPTS_OWN |= dict.fromkeys(OF_COMPILING, OWN)
VERSIONS = {"cluster-trainer": "0.1.0", "revision": "abc", "tensorflow": "2.21.0"}


@pytest.fixture
def run(tmp_path):
    """Return a function that makes a run's folder with its JSON files, and reads it."""

    def make(*, workers=1, script=None, cluster=None, settings=(), **variables):
        folder = tmp_path / "first"
        for index in range(workers):
            (folder / f"worker-{index}").mkdir(parents=True, exist_ok=True)
        environ = {f"TRAINER_{name.upper()}": text for name, text in variables.items()}
        found = TrainerConfig.read(environ, []).as_json() | dict(settings)
        result = {"settings": found, "workers": workers, "versions": VERSIONS}
        result |= {"script": script} if script else {}
        (folder / "worker-0/result.json").write_text(json.dumps(result))
        if cluster:
            (folder / "cluster.json").write_bytes(run_record.render(cluster))
        return read_run(folder)

    return make


def words_of(found):
    plain = found.command.replace('"$(id -u):$(id -g)"', "me").replace('"$PWD', '"HERE')
    return shlex.split(plain)


def given_to(found):
    """Return the variables that a container is given."""
    words = words_of(found)
    pairs = [word.partition("=") for before, word in pairwise(words) if before == "-e"]
    return {name: text for name, _, text in pairs}


def of_trainer(found):
    return {n: t for n, t in given_to(found).items() if n.startswith("TRAINER_")}


def test_a_container_is_given_what_makes_the_same_run(run, tmp_path):
    given = {"epochs": "7", "seed": "3", "metrics": "accuracy", "sync_batch_norm": "true"}
    given |= {"optimizer": "adamw", "global_batch_size": "96", "model": "resnet50"}
    first = run(**given)
    variables = of_trainer(again(first))
    assert variables.pop("TRAINER_RUN_DIR") == "/runs/again"
    assert len(variables) == len(given)
    second = TrainerConfig.read(variables | {"TRAINER_RUN_DIR": str(tmp_path)}, [])
    places = {"run_dir": None}
    assert second.as_json() | places == first.settings | places


def test_what_is_not_recorded_stands_as_a_blank_and_is_said(run):
    found = again(run(workers=3))
    assert words_of(found)[-1] == "IMAGE"
    assert {"WORKER_HOSTS": "…", "WORKER_INDEX": "…"}.items() <= given_to(found).items()
    image, hosts = found.notes
    assert "cluster-trainer 0.1.0 of revision abc with TensorFlow 2.21.0" in image
    assert "addresses of 3 workers" in hosts


def test_one_worker_needs_neither_others_nor_their_network(run):
    found = again(run())
    assert not {"WORKER_HOSTS", "--network"} & {*words_of(found), *given_to(found)}
    assert len(found.notes) == 1


def test_the_results_can_be_written_and_a_data_set_is_kept(run):
    words = words_of(again(run(settings={"dataset": "mnist"})))
    assert words[:4] == ["mkdir", "-p", "runs", "data"]
    assert ("--user", "me") in [*pairwise(words)]
    assert ("-v", "HERE/data:/data") in [*pairwise(words)]


def test_modules_of_the_users_own_are_mounted_and_named(run):
    found = again(run(model="json:loads", metrics="accuracy,json:dumps"))
    assert "HERE:/workspace:ro" in words_of(found)
    assert any("json:loads, json:dumps" in note for note in found.notes)


def test_a_script_is_started_as_one_and_not_the_trainer(run):
    script = {"path": "my/train.py", "arguments": 0}
    found = again(run(script=script, settings=SCRIPTS_OWN, epochs="7"))
    assert words_of(found)[-3:] == ["IMAGE", "python", "my/train.py"]
    assert "HERE:/workspace:ro" in words_of(found)
    assert of_trainer(found) == {"TRAINER_RUN_DIR": "/runs/again", "TRAINER_EPOCHS": "7"}
    assert not any("arguments" in note for note in found.notes)


def test_a_scripts_arguments_are_said_to_be_missing(run):
    found = again(run(script={"path": "t.py", "arguments": 2}, settings=SCRIPTS_OWN))
    assert any("2 were given, and are not recorded" in note for note in found.notes)


def test_a_compiled_model_of_the_users_own_is_the_trainers(run):
    compiled = {"model": "json:loads", **dict.fromkeys(OF_COMPILING, OWN)}
    found = again(run(settings=compiled))
    assert words_of(found)[-1] == "IMAGE"
    assert of_trainer(found) == {
        "TRAINER_RUN_DIR": "/runs/again",
        "TRAINER_MODEL": "json:loads",
    }


def test_of_a_run_that_says_nothing_there_is_no_command(tmp_path):
    (tmp_path / "own/worker-0").mkdir(parents=True)
    found = again(read_run(tmp_path / "own"))
    assert found.command == ""
    assert found.notes


def test_what_a_local_cluster_was_started_with_is_one_command(run):
    kept = {"WORKERS": "2", "TRAINER_MODEL": 'a b; $(rm -r /)"', "TRAINER_EPOCHS": "7"}
    settings = run_record.decided({**kept, "RUN_UID": "5", "CLUSTER_TOKEN": "x" * 16})
    found = again(run(cluster=settings))
    words = words_of(found)
    assert words[0] == "env"
    assert {*words[1:-2]} == {f"{name}={value}" for name, value in kept.items()}
    assert words[-2:] == ["make", "up-local"]
    assert any(note.startswith("CLUSTER_TOKEN was given") for note in found.notes)


def test_a_run_on_several_machines_is_repeated_there(run):
    words = words_of(again(run(cluster={"HOSTS": "ana@m1 ana@m2", "TRAINER_EPOCHS": "7"})))
    assert "HOSTS=ana@m1 ana@m2" in words
    assert words[-2:] == ["make", "up"]


def test_all_that_a_local_cluster_remembers_is_given_again():
    kept = [one for one in (*names.OWN, *names.passed_on()) if run_record.is_remembered(one)]
    assert [one for one in kept if not OF_CLUSTER.fullmatch(one)] == [*OF_THE_START[:2]]


def test_what_whoever_trained_has_added_there_is_given_to_nobody(run):
    found = again(run(cluster={"WORKERS": "2", "PATH": "/evil", "MAKEFLAGS": "--eval=$(shell id)"}))
    assert words_of(found) == ["env", "WORKERS=2", "make", "up-local"]
    assert any("MAKEFLAGS, PATH" in note for note in found.notes)


def test_settings_of_another_version_are_given_to_its_image(run):
    found = again(run(settings={"warp": 9, "epochs": 3}))
    assert of_trainer(found)["TRAINER_WARP"] == "9"
    assert any("another version" in note and "TRAINER_WARP" in note for note in found.notes)


@pytest.mark.parametrize("value", [{}, [], ["a", 1], {"a": {"b": None}}, -1, True, "x\ny"])
def test_settings_of_any_form_are_no_reason_to_fail(run, value):
    assert again(run(settings={"epochs": value, "model": value, "dataset": value})).command

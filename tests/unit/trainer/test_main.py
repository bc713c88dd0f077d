import json
import sys
from pathlib import Path

import pytest

from cluster_trainer.__main__ import main
from cluster_trainer.results import done
from cluster_trainer.settings.job import read_job

CLUSTER = {"worker": ["a:1", "b:1"]}


@pytest.fixture
def environ(tmp_path):
    return {"TRAINER_RUN_DIR": str(tmp_path)}


def tf_config(kind):
    return json.dumps({"cluster": CLUSTER, "task": {"type": kind, "index": 0}})


def checked(environ, arguments, capsys):
    code = main(environ, ["check", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_check_prints_the_settings_that_all_workers_share(environ, capsys):
    code, said = checked(environ, ["--epochs", "7", "--threads", "3"], capsys)
    assert (code, said["problems"]) == (0, [])
    assert said["settings"]["TRAINER_EPOCHS"] == "7"
    assert not {"TRAINER_THREADS", "TRAINER_RUN_DIR", "TRAINER_DATA_DIR"} & said["settings"].keys()


def test_a_default_that_is_written_down_is_the_same_setting(environ, capsys):
    implied = checked(environ, [], capsys)
    assert checked(environ, ["--per-replica-batch-size", "32"], capsys) == implied


def test_check_prints_problems_as_json(environ, capsys):
    code, said = checked(environ, ["--model", "nope", "--epochs", "0"], capsys)
    names = [problem["name"] for problem in said["problems"]]
    assert (code, said["settings"]) == (78, {})
    assert names == ["TRAINER_MODEL (--model)", "TRAINER_EPOCHS (--epochs)"]


@pytest.mark.parametrize("wanted", ["off", "fast"])
def test_the_trainer_is_built_on_the_engine(environ, capsys, wanted):
    environ["CLUSTER_TRAINER_ENGINE"] = wanted
    code, said = checked(environ, ["--epochs", "0"], capsys)
    names = [problem["name"] for problem in said["problems"]]
    assert (code, names) == (78, ["TRAINER_EPOCHS (--epochs)", "CLUSTER_TRAINER_ENGINE"])
    assert main(environ, []) == 78
    assert f'CLUSTER_TRAINER_ENGINE: received "{wanted}"' in capsys.readouterr().err


def test_a_bad_setting_is_one_message_on_stderr(environ, capsys):
    assert main(environ, ["--epochs", "0"]) == 78
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("cluster-trainer: 1 problem in the configuration\n")


def test_a_lonely_strategy_in_a_cluster_is_refused(environ, capsys):
    environ |= {"TF_CONFIG": tf_config("worker"), "TRAINER_STRATEGY": "none"}
    assert main(environ, []) == 78
    assert "each would train by itself" in capsys.readouterr().err


THREE = {"cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": {"type": "worker", "index": 0}}
FEWER = {"TF_CONFIG": json.dumps(THREE), "MIN_WORKERS": "2"}


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--collectives=tensorflow"], "TRAINER_COLLECTIVES"),
        (["--strategy=multiworker"], "TRAINER_STRATEGY"),
        (["--logical-cpus=2"], "TRAINER_LOGICAL_CPUS"),
        (["--devices=GPU:0"], "TRAINER_DEVICES"),
        (["--logical-cpus=2", "--devices=CPU:0,CPU:1"], "TRAINER_DEVICES"),
        (["--gpus-per-worker=1"], "TRAINER_GPUS_PER_WORKER"),
    ],
    ids=str,
)
def test_what_leaves_no_ring_is_refused_where_fewer_workers_are_to_go_on(
    environ, flags, name, capsys
):
    code, said = checked(environ | FEWER, flags, capsys)
    assert (code, [problem["name"].split()[0] for problem in said["problems"]]) == (78, [name])
    assert main(environ | FEWER, flags) == 78
    for all_go_on in ({"MIN_WORKERS": "3"}, {"MIN_WORKERS": ""}):
        assert checked(environ | FEWER | all_go_on, flags, capsys)[0] == 0


@pytest.mark.parametrize(
    ("strategy", "collectives", "accepted"),
    [
        ("auto", "tensorflow", ["auto", "ring"]),
        ("multiworker", "tensorflow", ["ring"]),
        ("multiworker", "auto", ["auto"]),
    ],
)
def test_what_is_accepted_instead_leaves_a_ring(environ, strategy, collectives, accepted, capsys):
    settings = {"TRAINER_STRATEGY": strategy, "TRAINER_COLLECTIVES": collectives}
    _, said = checked(environ | FEWER | settings, [], capsys)
    (problem,) = said["problems"]
    assert problem["accepted"] == " or ".join(accepted)
    name = problem["name"].split()[0]
    for value in accepted:
        assert checked(environ | FEWER | settings | {name: value}, [], capsys)[0] == 0


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--collectives=ring", "--strategy=multiworker"],
        ["--logical-cpus=1"],
        ["--logical-cpus=2", "--devices=CPU:0"],
        ["--gpus-per-worker=1", "--devices=CPU:0"],
        ["--gpus-per-worker=0"],
    ],
    ids=str,
)
def test_what_may_be_a_ring_is_not_refused(environ, flags, capsys):
    given = environ | FEWER | {"TRAINER_COLLECTIVES": "auto"}
    assert checked(given, flags, capsys) == checked(given | {"MIN_WORKERS": "3"}, flags, capsys)
    assert checked(given, flags, capsys)[0] == 0


def test_an_evaluator_has_nothing_to_do(environ, capsys):
    assert main(environ | {"TF_CONFIG": tf_config("evaluator")}, []) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_settings_are_checked_without_tensorflow(environ):
    main(environ, ["check"])
    assert "tensorflow" not in sys.modules


@pytest.fixture
def done_run(environ):
    """Leave behind a run that is done, and return its variables."""
    job = read_job(environ, [])
    job.folder.mkdir()
    done.mark(job, 81)
    return environ


def test_a_run_that_is_done_is_not_started_again(done_run, capsys):
    assert main(done_run, []) == 0
    assert "worker-0: this run is done (50 epochs, 81 steps)" in capsys.readouterr().out


def test_check_says_that_a_run_is_done(done_run, capsys):
    code, said = checked(done_run, [], capsys)
    assert (code, said["problems"]) == (0, [])
    assert "this run is done" in said["done"]


def test_check_says_that_another_run_is_done(done_run, capsys):
    code, said = checked(done_run, ["--seed", "1"], capsys)
    assert (code, [problem["name"] for problem in said["problems"]]) == (78, ["TRAINER_SEED"])


def test_progress_is_told_where_the_entrypoint_looks(environ):
    assert read_job(environ | {"PROGRESS_FILE": "/tmp/p"}, []).progress_file == Path("/tmp/p")
    assert read_job(environ, []).progress_file is None


@pytest.mark.parametrize(("given", "is_restart"), [("", False), ("0", False), ("2", True)])
def test_a_restart_is_told_from_a_start(environ, given, is_restart):
    variable = {"RESTART_COUNT": given} if given else {}
    assert read_job(environ | variable, []).is_restart == is_restart

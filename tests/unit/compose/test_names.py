"""The accepted names, and the suggestion for a misspelt name."""

import pytest

from cluster_trainer.settings.config import setting_names
from cluster_trainer.settings.names.spellings import variable_of
from entrypoint.settings.options import VARIABLES
from local_cluster.settings import names

# Variables that the compose files set, and variables that must differ between workers.
NOT_PASSED_ON = {
    "TF_CONFIG",
    "WORKER_HOSTS",
    "WORKER_INDEX",
    "WORKER_PORT",
    "WORKSPACE_DIGEST",
    "CLUSTER_SOURCE",
    "ENV_FILE",
    "PROGRESS_FILE",
    "FAILURE_FILE",
    "PEER_LOST_EXIT_CODE",
}


def test_the_list_has_every_setting_of_the_trainer():
    listed = {name for name in names.passed_on() if name.startswith("TRAINER_")}
    assert listed | set(names.DECIDED) == {variable_of(name) for name in setting_names()}
    assert not listed & set(names.DECIDED)


def test_the_list_has_what_the_entrypoint_takes_from_all_workers_alike():
    others = {name for name in names.passed_on() if not name.startswith(("TRAINER_", "PIP_"))}
    assert others == VARIABLES.keys() - NOT_PASSED_ON


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TRAINER_EPOCH", "TRAINER_EPOCHS"),
        ("TRAINER_LEARNINGRATE", "TRAINER_LEARNING_RATE"),
        ("TRAINER_BATCH_SIZE", "TRAINER_GLOBAL_BATCH_SIZE"),
        ("TRAINER_EPOCHS_FILE", "TRAINER_EPOCHS"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest(name, meant):
    (sentence,) = names.unknown_settings({name: "3", "TRAINER_SEED": "1", "OTHER": "x"})
    assert sentence.startswith(f"{name}: ")
    assert f"Did you mean {meant}?" in sentence


def test_a_name_that_resembles_nothing_gets_no_advice():
    (sentence,) = names.unknown_settings({"TRAINER_Q": "x"})
    assert "Did you mean" not in sentence


def test_an_empty_setting_is_not_given():
    assert names.unknown_settings({"TRAINER_EPOCH": ""}) == []


@pytest.mark.parametrize(
    ("name", "instead"), [("TRAINER_DATA_DIR", "DATA_DIR"), ("TRAINER_RUN_DIR", "RUNS_DIR")]
)
def test_what_a_local_cluster_decides_itself_says_what_can_be_given(name, instead):
    assert f"{instead}" in names.unknown_settings({name: "/x"})[0]
    assert f"{instead}" in names.unknown_names(["up-local"], [name])[0]


@pytest.mark.parametrize(
    ("goals", "given", "refused"),
    [
        (["up-local"], ["WORKERS", "NAME", "EPOCHS", "BATCH", "TRAINER_SEED", "CLUSTER_TOKEN"], []),
        (["up-local"], ["PYTHON", "COMPOSE_PROJECT_NAME", "DOCKER_HOST", "http_proxy"], []),
        (["up-local"], ["BASE_IMAGE", "PIP_CONFIG_FILE", "MAKEFLAGS", "SHELL"], []),
        (["up-local"], ["WORKER", "EPOCH", "WORKERS"], ["WORKER", "EPOCH"]),
        (["stop"], ["WORKER"], []),
        (["stop"], ["WORKERS"], ["WORKERS"]),
        (["resume"], ["WORKERS", "EPOCHS", "NAME"], []),
        (["resume"], ["WORKER"], []),
        (["resume"], ["WORKER", "WORKERS", "EPOCHS"], ["WORKERS", "EPOCHS"]),
        (["down"], ["WORKER"], ["WORKER"]),
        (["stop", "up-local"], ["WORKER", "WORKERS"], []),
        (["up"], ["HOSTS", "NAME", "EPOCHS", "SCRIPT", "WORKERS"], ["WORKERS"]),
        (["up-local"], ["HOSTS"], ["HOSTS"]),
        (["resume"], ["HOSTS", "NAME"], []),
        (["replace"], ["HOST", "WITH"], []),
        (["fetch", "attach"], ["EPOCHS"], ["EPOCHS"]),
        (["data"], ["DATASET", "DATA_DIR"], []),
        (["data"], ["EPOCHS"], ["EPOCHS"]),
        (["data-sample"], ["SAMPLE_PICTURES", "DATASET"], []),
        (["tensorboard"], ["PORT", "IMAGE", "RUNS_DIR", "WORKERS"], ["WORKERS"]),
    ],
)
def test_each_of_makes_targets_takes_its_own_names(goals, given, refused):
    sentences = names.unknown_names(goals, given)
    assert [sentence.partition(":")[0] for sentence in sentences] == refused


KNOWN = names.names_of_goal("up-local")
TYPOS = {name[:-1] for name in KNOWN} - KNOWN


def test_a_name_without_its_last_letter_never_passes_unnoticed():
    for typo in sorted(name for name in TYPOS if not names.OF_TOOLS.fullmatch(name)):
        (sentence,) = names.unknown_names(["up-local"], [typo])
        assert "Did you mean " in sentence, typo


def test_a_target_beside_them_may_take_names_of_its_own():
    assert names.unknown_names(["up-local", "test"], ["TESTS"]) == []
    assert names.unknown_names(["up-local"], ["TESTS"])


@pytest.mark.parametrize(
    ("goals", "given", "said"),
    [
        (["up-local"], [], ["BATCH=8", "SCRIPT=a.py", "SEED=7"]),
        (["up-local"], ["SEED", "BATCH"], ["SCRIPT=a.py"]),
        (["up"], [], ["BATCH=8", "HOSTS=m1", "SCRIPT=a.py", "SEED=7"]),
        (["resume"], ["WORKER"], []),
        (["data"], [], []),
    ],
)
def test_variables_of_the_shell_that_a_target_takes_are_said(goals, given, said):
    of_make = {"TRAINER_SEED": "7", "RUN_NAME": "x", "NAME": "y", "IMAGE": "i"}
    own = {"SEED": "7", "BATCH": "8", "SCRIPT": "a.py", "HOSTS": "m1", "MODEL": "", "HOME": "/"}
    assert names.taken_from(of_make | own, goals, given) == said


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("up-local", ["COMPOSE_PROJECT_NAME=p", "LOG_FORMAT=json", "METRICS_PORT=9090"]),
        ("resume", ["COMPOSE_PROJECT_NAME=p", "LOG_FORMAT=json", "METRICS_PORT=9090"]),
        ("data", []),
    ],
)
def test_variables_of_the_entrypoint_and_of_the_cluster_are_said(goal, said):
    """Other programs have these names, too."""
    shell = {"LOG_FORMAT": "json", "METRICS_PORT": "9090", "COMPOSE_PROJECT_NAME": "p"}
    assert names.taken_from(shell, [goal], []) == said


def test_secrets_of_the_shell_are_said_by_their_names_alone():
    shell = dict.fromkeys(("CLUSTER_TOKEN", "PIP_INDEX_URL", "PREEMPTION_URL"), "http://a:b@c")
    assert names.taken_from(shell, ["up"], []) == [f"{name}=***" for name in shell]


@pytest.mark.parametrize(("goal", "is_said"), [("up-local", True), ("status", False)])
def test_make_says_what_the_shell_adds_before_it_starts_something(capsysbinary, goal, is_said):
    assert names.check_names({}, {"SEED": "7"}, [goal], []) == 0
    assert (b"SEED=7" in capsysbinary.readouterr().out) == is_said

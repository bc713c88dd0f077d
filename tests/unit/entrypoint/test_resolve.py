"""Which sources speak, whether they agree, and how one is picked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

AS_WORKER_1 = '{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":1}}'
WITH_CHIEF = (
    '{"cluster":{"chief":["a:1"],"worker":["b:1","c:1"]},"task":{"type":"worker","index":0}}'
)
EVALUATOR = '{"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":0}}'


def test_nothing_set_is_one_worker_without_tf_config(answer: Callable) -> None:
    assert answer({}).resolution is None


@pytest.mark.parametrize(
    "environ",
    [
        {"TF_CONFIG": AS_WORKER_1, "WORKER_HOSTS": "a:1,b:1", "WORKER_INDEX": "1"},
        {"TF_CONFIG": AS_WORKER_1, "WORKER_HOSTS": "A:1 b:1"},
        {"TF_CONFIG": AS_WORKER_1, "WORKER_HOSTS": "a,b", "WORKER_PORT": "1"},
        {"TF_CONFIG": AS_WORKER_1, "WORKER_INDEX": "1"},
        {"TF_CONFIG": WITH_CHIEF, "WORKER_HOSTS": "a:1,b:1,c:1", "WORKER_INDEX": "1"},
        {"TF_CONFIG": WITH_CHIEF, "WORKER_INDEX": "1"},
        {"TF_CONFIG": EVALUATOR, "WORKER_HOSTS": "a:1"},
    ],
)
def test_two_that_agree_are_fine_and_tf_config_is_passed_on(
    answer: Callable,
    environ: dict[str, str],
) -> None:
    found = answer(environ)
    assert found.resolution.source == "TF_CONFIG"
    assert json.loads(found.tf_config_text) == json.loads(environ["TF_CONFIG"])


@pytest.mark.parametrize(
    ("tf_config", "hosts", "index"),
    [
        (AS_WORKER_1, "a:1,c:1", "1"),
        (AS_WORKER_1, "b:1,a:1", "1"),
        (AS_WORKER_1, "a:1,b:1", "0"),
        (AS_WORKER_1, "a:1,b:1,c:1", "1"),
        (WITH_CHIEF, "a:1,b:1,c:1", "0"),
        (EVALUATOR, "a:1", "0"),
    ],
)
def test_refuses_two_that_disagree_and_shows_both(
    refused: Callable,
    tf_config: str,
    hosts: str,
    index: str,
) -> None:
    environ = {"TF_CONFIG": tf_config, "WORKER_HOSTS": hosts, "WORKER_INDEX": index}
    (problem,) = refused(environ)
    assert problem.name == "TF_CONFIG and WORKER_HOSTS"
    assert f"WORKER_HOSTS: worker-{index} of {hosts}" in problem.received
    assert "TF_CONFIG: " in problem.received
    assert "CLUSTER_SOURCE=tf_config or CLUSTER_SOURCE=worker_hosts" in problem.advice


def test_shows_both_of_two_long_lists(refused: Callable) -> None:
    hosts = [f"10.0.0.{i}:1" for i in range(1, 100)]
    document = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 5}}
    environ = {"TF_CONFIG": json.dumps(document), "WORKER_HOSTS": ",".join(hosts)}
    (problem,) = refused({**environ, "WORKER_INDEX": "6"})
    assert "TF_CONFIG: worker-5" in problem.received[:200]
    assert "WORKER_HOSTS: worker-6" in problem.received[:200]


@pytest.mark.parametrize(
    ("document", "index"), [(AS_WORKER_1, "0"), (EVALUATOR, "0"), (AS_WORKER_1, "x")]
)
def test_refuses_an_index_that_tf_config_contradicts(
    refused: Callable,
    document: str,
    index: str,
) -> None:
    (problem,) = refused({"TF_CONFIG": document, "WORKER_INDEX": index})
    assert (problem.name, problem.received) == ("WORKER_INDEX", index)
    assert "because TF_CONFIG says that this is" in problem.accepted


DISAGREEING = {"TF_CONFIG": AS_WORKER_1, "WORKER_HOSTS": "c:1", "WORKER_INDEX": "0"}


@pytest.mark.parametrize(
    ("choice", "source"),
    [("tf_config", "TF_CONFIG"), ("worker_hosts", "WORKER_HOSTS"), (" tf_config\n", "TF_CONFIG")],
)
def test_cluster_source_picks_one(answer: Callable, choice: str, source: str) -> None:
    assert answer({**DISAGREEING, "CLUSTER_SOURCE": choice}).resolution.source == source


def test_cluster_source_none_is_one_worker_whatever_is_set(answer: Callable) -> None:
    broken = {"TF_CONFIG": "{", "WORKER_HOSTS": "", "WORKER_INDEX": "x"}
    assert answer({**broken, "CLUSTER_SOURCE": "none"}).resolution is None


def test_what_is_not_picked_may_be_wrong(answer: Callable) -> None:
    environ = {"TF_CONFIG": AS_WORKER_1, "WORKER_HOSTS": "", "CLUSTER_SOURCE": "tf_config"}
    assert answer(environ).resolution.source == "TF_CONFIG"


def test_refuses_unknown_cluster_source(refused: Callable) -> None:
    (problem,) = refused({**DISAGREEING, "CLUSTER_SOURCE": "slrum"})[:1]
    assert (problem.name, problem.received) == ("CLUSTER_SOURCE", "slrum")
    assert problem.accepted == "auto, tf_config, worker_hosts or none"


@pytest.mark.parametrize("choice", ["tf_config", "worker_hosts"])
def test_refuses_a_cluster_source_that_is_not_set(refused: Callable, choice: str) -> None:
    (problem,) = refused({"CLUSTER_SOURCE": choice})
    assert problem.name == "CLUSTER_SOURCE"
    assert problem.advice == f"{choice.upper()} is not set."


@pytest.mark.parametrize("name", ["WORKER_HOSTS_FILE", "TF_CONFIG_FILE"])
def test_an_unreadable_file_is_one_problem_not_two(refused: Callable, name: str) -> None:
    (problem,) = refused({name: "/nowhere", "WORKER_INDEX": "0"})
    assert problem.name == name


def test_problems_of_all_kinds_come_together(refused: Callable, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("oh dear\n")
    environ = {
        "CLUSTER_SOURCE": "x",
        "WORKER_PORT": "y",
        "TF_CONFIG": "{",
        "WORKER_HOSTS": "a:0",
        "WORKER_INDEX": "1",
        "TRAINER_MODEL": "a",
        "TRAINER_MODEL_FILE": "b",
    }
    assert [problem.name for problem in refused(environ)] == [
        ".env line 1",
        "TRAINER_MODEL and TRAINER_MODEL_FILE",
        "CLUSTER_SOURCE",
        "WORKER_PORT",
        "TF_CONFIG",
        "WORKER_HOSTS, entry 0",
        "WORKER_INDEX",
    ]


def test_a_message_says_which_file_a_value_is_from(refused: Callable, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("WORKER_HOSTS=a:0\nWORKER_INDEX=0")
    (problem,) = refused({})
    assert problem.name == "WORKER_HOSTS (.env), entry 0"

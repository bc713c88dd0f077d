"""The sources that are set: whether they agree, and how one of them is picked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.sources import SOURCES
from entrypoint.sources.slurm import OF_A_STEP

AS_WORKER_1 = '{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":1}}'
WITH_CHIEF = (
    '{"cluster":{"chief":["a:1"],"worker":["b:1","c:1"]},"task":{"type":"worker","index":0}}'
)
EVALUATOR = '{"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":0}}'


SKYPILOT = {
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NUM_NODES": "2",
}
SLURM_LISTS = {"SLURM_STEP_NODELIST": "10.0.0.[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
CLUSTER_SPEC = {
    "cluster": {"workerpool0": ["10.0.0.1:2222"], "workerpool1": ["10.0.0.2:2222"]},
    "task": {"type": "workerpool1", "index": 0},
}

# The same two workers in the variables of each source. This worker is the second.
ALIKE = {
    "tf_config": {
        "TF_CONFIG": '{"cluster":{"worker":["10.0.0.1:2222","10.0.0.2:2222"]},'
        '"task":{"type":"worker","index":1}}'
    },
    "worker_hosts": {"WORKER_HOSTS": "10.0.0.1,10.0.0.2", "JOB_COMPLETION_INDEX": "1"},
    "sagemaker": {
        "SM_HOSTS": '["10.0.0.1","10.0.0.2"]',
        "SM_CURRENT_HOST": "10.0.0.2",
        "WORKER_PORT": "2222",
    },
    "vertex": {"CLUSTER_SPEC": json.dumps(CLUSTER_SPEC)},
    "skypilot": SKYPILOT,
    "slurm": {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "WORKER_PORT": "2222"}
    | SLURM_LISTS,
}
# The same, but this worker is the first, or a host differs.
OTHERS = {
    "worker_hosts": {"WORKER_HOSTS": "10.0.0.1,10.0.0.2", "JOB_COMPLETION_INDEX": "0"},
    "sagemaker": ALIKE["sagemaker"] | {"SM_CURRENT_HOST": "10.0.0.1"},
    "skypilot": SKYPILOT | {"SKYPILOT_NODE_IPS": "10.0.0.3\n10.0.0.2"},
    "slurm": ALIKE["slurm"] | {"SLURM_PROCID": "0"},
    "kubernetes": {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "job-node-0-0.job",
    },
}


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
    assert problem.accepted == (
        "auto, tf_config, worker_hosts, sagemaker, vertex, skypilot, slurm, kubernetes or none"
    )


@pytest.mark.parametrize("choice", ["tf_config", "worker_hosts"])
def test_refuses_a_cluster_source_that_is_not_set(refused: Callable, choice: str) -> None:
    (problem,) = refused({"CLUSTER_SOURCE": choice})
    assert problem.name == "CLUSTER_SOURCE"
    assert problem.advice == f"{choice.upper()} is not set."


@pytest.mark.parametrize(
    ("choice", "environ", "advice"),
    [
        ("sagemaker", {}, "SM_HOSTS and SM_CURRENT_HOST are not set."),
        ("vertex", {}, "CLUSTER_SPEC is not set."),
        ("slurm", {"SLURM_PROCID": "0"}, f"{' and '.join(OF_A_STEP)} are not set."),
        ("kubernetes", SKYPILOT, "PET_NNODES and PET_NODE_RANK and PET_MASTER_ADDR are not set."),
    ],
)
def test_says_what_a_picked_source_lacks(
    refused: Callable, choice: str, environ: dict[str, str], advice: str
) -> None:
    (problem,) = refused(environ | {"CLUSTER_SOURCE": choice})
    assert problem.name == "CLUSTER_SOURCE"
    assert problem.advice == advice


TWO = {"WORKER_HOSTS": "10.0.0.1,10.0.0.2", "WORKER_INDEX": "1"}


@pytest.mark.parametrize("first", ALIKE)
@pytest.mark.parametrize("second", ALIKE)
def test_any_two_that_agree_are_fine(answer: Callable, first: str, second: str) -> None:
    found = answer(ALIKE[first] | ALIKE[second]).resolution
    assert [str(address) for address in found.spec.addresses] == ["10.0.0.1:2222", "10.0.0.2:2222"]
    assert found.rank == 1
    names = list(SOURCES)
    assert found == answer(ALIKE[min(first, second, key=names.index)]).resolution


def test_a_list_without_an_index_takes_a_schedulers(answer: Callable) -> None:
    found = answer({"WORKER_HOSTS": "10.0.0.1,10.0.0.2"} | SKYPILOT).resolution
    assert (found.source, found.rank) == ("WORKER_HOSTS", 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [(first, second) for first in OTHERS for second in ALIKE if first != second],
)
def test_any_two_that_disagree_are_refused_and_shown(
    refused: Callable, answer: Callable, first: str, second: str
) -> None:
    environ = OTHERS[first] | ALIKE[second]
    (problem,) = refused(environ)
    one, other = sorted([first, second], key=list(SOURCES).index)
    assert f"CLUSTER_SOURCE={one} or CLUSTER_SOURCE={other}" in problem.advice
    both = {name: answer(environ | {"CLUSTER_SOURCE": name}).resolution for name in (one, other)}
    assert problem.name == " and ".join(found.source for found in both.values())
    for found in both.values():
        assert f"{found.source}: {found.task} of {found.spec.addresses[0]}" in problem.received


BROKEN = {
    "sagemaker": {"SM_HOSTS": "x", "SM_CURRENT_HOST": "y"},
    "vertex": {"CLUSTER_SPEC": "{"},
    "skypilot": {"SKYPILOT_NODE_IPS": "-", "SKYPILOT_NODE_RANK": "x"},
    "slurm": {"SLURM_PROCID": "x", "SLURM_STEP_NUM_TASKS": "0"} | SLURM_LISTS,
    "kubernetes": {"PET_NNODES": "1:4", "PET_MASTER_ADDR": "x"},
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("choice", ["worker_hosts", "none"])
def test_a_scheduler_that_is_not_picked_cannot_fail_the_start(
    answer: Callable, broken: str, choice: str
) -> None:
    found = answer(TWO | BROKEN[broken] | {"CLUSTER_SOURCE": choice}).resolution
    assert found == (answer(TWO).resolution if choice == "worker_hosts" else None)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_refusal_says_what_could_be_picked_instead(refused: Callable, broken: str) -> None:
    problems = refused(TWO | BROKEN[broken])
    assert "CLUSTER_SOURCE=worker_hosts" in problems[-1].advice


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

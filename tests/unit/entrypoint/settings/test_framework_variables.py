"""The cluster in the variables of Keras, JAX and PyTorch."""

import json

import pytest

from entrypoint.settings.environ import read_environ
from entrypoint.settings.framework_variables import NAMES, framework_variables
from entrypoint.sources.resolve import resolve


def found(tmp_path, **given):
    """Return the framework variables of a command. Fail if this machine's name is needed."""
    environ = read_environ(given, tmp_path)
    answer = resolve(environ, lambda _: pytest.fail("looked for this machine's name"))
    return framework_variables(answer.resolution, environ.texts())


def test_each_framework_is_told_the_first_workers_address_the_number_and_the_rank(tmp_path):
    assert found(tmp_path, WORKER_HOSTS="one:2000,[fd00::2]", WORKER_INDEX="1") == {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": "one:2000,[fd00::2]:2222",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
        "KERAS_DISTRIBUTION_PROCESS_ID": "1",
        "JAX_COORDINATOR_ADDRESS": "one:2000",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "MASTER_ADDR": "one",
        "MASTER_PORT": "2000",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "0",
    }


def test_an_address_of_ipv6_has_no_brackets_where_the_port_is_apart(tmp_path):
    told = found(tmp_path, WORKER_HOSTS="[fd00::1]:9,two", WORKER_INDEX="0")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("fd00::1", "9")
    assert told["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:9"


@pytest.mark.parametrize("names", NAMES)
def test_a_framework_of_which_anything_is_set_is_left_alone(tmp_path, names):
    for name in names:
        told = found(tmp_path, WORKER_HOSTS="one,two", WORKER_INDEX="0", **{name: "7"})
        assert not told.keys() & {*names}
        others = {other for group in NAMES if group != names for other in group}
        assert told.keys() == others


def test_ranks_count_a_chief_first(tmp_path):
    cluster = {"chief": ["a:1"], "worker": ["b:2", "c:3"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
    told = found(tmp_path, TF_CONFIG=text)
    assert (told["RANK"], told["WORLD_SIZE"], told["MASTER_ADDR"]) == ("2", "3", "a")


def test_an_evaluator_and_a_single_worker_are_told_nothing(tmp_path):
    cluster = {"worker": ["b:2", "c:3"], "evaluator": ["d:4"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
    assert found(tmp_path, TF_CONFIG=text) == {}
    assert found(tmp_path) == {}


@pytest.mark.parametrize(
    "given",
    [{"RANK": ""}, {"WORLD_SIZE": " "}, {"MASTER_PORT": "tcp://10.96.0.7:2222"}],
    ids=str,
)
def test_an_empty_value_and_a_kubernetes_service_set_nothing(tmp_path, run, given):
    own = {"WORKER_HOSTS": "one,two", "WORKER_INDEX": "1"}
    told = found(tmp_path, **own, **given)
    assert [told[name] for name in NAMES[-1]] == ["one", "2222", "2", "1", "0"]
    ended = run("sh", "-c", 'echo "$MASTER_ADDR:$MASTER_PORT $RANK"', **own, **given)
    assert ended.stdout == "one:2222 1\n"
    (name,) = given
    assert f"ignored {name}: " in ended.stderr


def test_a_value_that_keeps_others_unset_is_said(run):
    ended = run("env", WORKER_HOSTS="one,two", WORKER_INDEX="0", MASTER_PORT="29500")
    assert "MASTER_PORT is set: MASTER_ADDR, WORLD_SIZE, RANK, LOCAL_RANK are not" in ended.stderr
    assert "RANK=" not in ended.stdout
    whole = dict.fromkeys(NAMES[-1], "1")
    assert "is set" not in run("true", WORKER_HOSTS="one,two", WORKER_INDEX="0", **whole).stderr

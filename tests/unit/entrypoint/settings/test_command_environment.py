"""The variables that are added to the environment of the command."""

import pytest

from entrypoint.settings.command_environment import command_environment
from entrypoint.settings.environ import read_environ

OF_CLUSTER = '{"cluster": {}}'
LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@pytest.mark.parametrize(
    ("tf_config", "given", "level"),
    [
        (OF_CLUSTER, {LEVEL: "1"}, "2"),
        (OF_CLUSTER, {LEVEL: "1", "TRAINER_COLLECTIVES": "ring"}, "2"),
        (OF_CLUSTER, {LEVEL: "1", "TRAINER_COLLECTIVES": "tensorflow"}, "1"),
        (OF_CLUSTER, {LEVEL: "0"}, "0"),
        (OF_CLUSTER, {}, None),
        (None, {LEVEL: "1"}, "1"),
    ],
)
def test_a_cluster_that_may_sum_over_a_ring_leaves_warnings_out(tmp_path, tf_config, given, level):
    """A failed sum prints two pages of warnings. A level that the user chose stays."""
    assert command_environment(read_environ(given, tmp_path), tf_config).get(LEVEL) == level


HOSTS = ("worker-0", "10.0.0.2", "fd00::3")
JOINED = "worker-0,10.0.0.2,fd00::3"


def exceptions(tmp_path, tf_config=OF_CLUSTER, **given):
    """Return the variables of the command that exempt hosts from a proxy."""
    found = command_environment(read_environ(given, tmp_path), tf_config, HOSTS)
    return {name: text for name, text in found.items() if name.lower().startswith("no_")}


@pytest.mark.parametrize(
    "name", ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
)
def test_no_proxy_is_used_for_the_workers(tmp_path, name):
    found = exceptions(tmp_path, **{name: "http://proxy:3128"})
    assert found == {"no_proxy": JOINED, "NO_PROXY": JOINED}


def test_the_workers_join_what_was_given_in_either_spelling(tmp_path):
    given = {"http_proxy": "http://proxy:3128", "NO_PROXY": "localhost, 10.0.0.2"}
    joined = "localhost,10.0.0.2,worker-0,fd00::3"
    assert exceptions(tmp_path, **given) == {"no_proxy": joined, "NO_PROXY": joined}
    both = exceptions(tmp_path, **given, no_proxy=".internal", no_grpc_proxy="a")
    assert both == {
        "no_proxy": f".internal,{JOINED}",
        "NO_PROXY": joined,
        "no_grpc_proxy": f"a,{JOINED}",
    }


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"http_proxy": ""},
        {"http_proxy": "http://proxy:3128", "grpc_proxy": "http://other:3128"},
        {"tf_config": None, "http_proxy": "http://proxy:3128"},
    ],
    ids=["no proxy", "an empty one", "a proxy that is meant for gRPC", "one worker"],
)
def test_exceptions_of_a_proxy_stay_as_they_were_given(tmp_path, given):
    assert exceptions(tmp_path, **given, no_proxy="a") == {"no_proxy": "a"}


@pytest.mark.parametrize("tf_config", [None, OF_CLUSTER], ids=["one worker", "a cluster"])
@pytest.mark.parametrize(
    ("given", "seed"),
    [
        ({}, "0"),
        ({"PYTHONHASHSEED": ""}, "0"),
        ({"PYTHONHASHSEED": "7"}, "7"),
        ({"PYTHONHASHSEED": "random"}, "random"),
    ],
    ids=["unset", "empty", "number", "random"],
)
def test_sets_have_one_order_in_all_processes_unless_the_user_chooses(
    tmp_path, tf_config, given, seed
):
    assert command_environment(read_environ(given, tmp_path), tf_config)["PYTHONHASHSEED"] == seed


def test_an_env_file_may_choose_the_order_of_sets(tmp_path):
    (tmp_path / ".env").write_text("PYTHONHASHSEED=7\n")
    assert command_environment(read_environ({}, tmp_path), None)["PYTHONHASHSEED"] == "7"

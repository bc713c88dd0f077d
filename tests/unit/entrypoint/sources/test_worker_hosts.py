"""WORKER_HOSTS and WORKER_INDEX become TF_CONFIG, or a message."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.cluster.spec import ClusterSpec
from entrypoint.errors import ConfigurationError
from entrypoint.sources import tf_config, worker_hosts
from harness.contracts import view

TWO = "10.1.10.58:12345,10.1.10.250:12345"


def test_two_hosts_become_tf_config(answer: Callable) -> None:
    assert json.loads(answer({"WORKER_HOSTS": TWO, "WORKER_INDEX": "1"}).tf_config_text) == {
        "cluster": {"worker": ["10.1.10.58:12345", "10.1.10.250:12345"]},
        "task": {"type": "worker", "index": 1},
    }


def test_one_host_is_a_cluster_of_one(answer: Callable) -> None:
    found = answer({"WORKER_HOSTS": "worker-0", "WORKER_INDEX": "0"}).tf_config_text
    assert json.loads(found) == {
        "cluster": {"worker": ["worker-0:2222"]},
        "task": {"type": "worker", "index": 0},
    }


@pytest.mark.parametrize(
    "text",
    [
        "a:1,b:2,[fd00::1]:3",
        "a:1 b:2 [fd00::1]:3",
        "a:1\nb:2\n[fd00::1]:3\n",
        " a:1 , b:2,\t[fd00::1]:3",
    ],
)
def test_separates_entries_by_commas_spaces_and_newlines(answer: Callable, text: str) -> None:
    found = answer({"WORKER_HOSTS": text, "WORKER_INDEX": "0"}).resolution.spec
    assert found.to_json() == {"worker": ["a:1", "b:2", "[fd00::1]:3"]}


def test_worker_port_is_for_entries_without_a_port(answer: Callable) -> None:
    environ = {"WORKER_HOSTS": "a,b:1,[::2]", "WORKER_INDEX": "0", "WORKER_PORT": "12345"}
    assert answer(environ).resolution.spec.to_json() == {
        "worker": ["a:12345", "b:1", "[::2]:12345"]
    }


def test_empty_worker_port_counts_as_unset(answer: Callable) -> None:
    environ = {"WORKER_HOSTS": "a", "WORKER_INDEX": "0", "WORKER_PORT": ""}
    assert str(answer(environ).resolution.spec.addresses[0]) == "a:2222"


@pytest.mark.parametrize("index", ["2", "7", "-1", "x", "", "1.0", "0x1", "1_0", "²", "9" * 5000])
def test_refuses_index_outside_cluster(refused: Callable, index: str) -> None:
    (problem,) = refused({"WORKER_HOSTS": TWO, "WORKER_INDEX": index})
    assert problem.name == "WORKER_INDEX"
    assert problem.received == index
    assert problem.accepted == "0 to 1, because WORKER_HOSTS names 2 workers"


@pytest.mark.parametrize("hosts", ["", "  ", "\n"])
def test_refuses_empty_list(refused: Callable, hosts: str) -> None:
    (problem,) = refused({"WORKER_HOSTS": hosts, "WORKER_INDEX": "0"})
    assert problem.name == "WORKER_HOSTS"
    assert "For a single worker, leave it out" in problem.advice


@pytest.mark.parametrize(
    ("hosts", "name", "received"),
    [
        ("a:1,,b:1", "WORKER_HOSTS, entry 1", ""),
        ("a:1,", "WORKER_HOSTS, entry 1", ""),
        ("a:1,:2222", "WORKER_HOSTS, entry 1", ":2222"),
        ("a:0", "WORKER_HOSTS, entry 0", "a:0"),
        ("a:1 b:70000", "WORKER_HOSTS, entry 1", "b:70000"),
        ("a:1,A:1", "WORKER_HOSTS", "a:1"),
        ("a,a:2222", "WORKER_HOSTS", "a:2222"),
        ("[::1]:1,[0::1]:1", "WORKER_HOSTS", "[::1]:1"),
    ],
)
def test_refuses_bad_entry(refused: Callable, hosts: str, name: str, received: str) -> None:
    (problem,) = refused({"WORKER_HOSTS": hosts, "WORKER_INDEX": "0"})
    assert (problem.name, problem.received) == (name, received)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_refuses_loopback_beside_other_machines(refused: Callable, host: str) -> None:
    (problem,) = refused({"WORKER_HOSTS": f"10.0.0.1:1,{host}:1", "WORKER_INDEX": "0"})
    assert problem.received == f"{host}:1"
    assert "loopback" in problem.advice


def test_accepts_a_list_of_loopback_addresses_only(answer: Callable) -> None:
    environ = {"WORKER_HOSTS": "localhost:20000,localhost:20001", "WORKER_INDEX": "1"}
    assert answer(environ).resolution.rank == 1


@pytest.mark.parametrize("port", ["0", "70000", "x", "-1"])
def test_refuses_bad_worker_port(refused: Callable, port: str) -> None:
    (problem,) = refused({"WORKER_HOSTS": "a", "WORKER_INDEX": "0", "WORKER_PORT": port})
    assert (problem.name, problem.received, problem.accepted) == ("WORKER_PORT", port, "1 to 65535")


def test_refuses_index_without_hosts(refused: Callable) -> None:
    (problem,) = refused({"WORKER_INDEX": "0"})
    assert problem.name == "WORKER_INDEX"
    assert "WORKER_HOSTS, which is not set" in problem.accepted


def test_reports_all_problems_together(refused: Callable) -> None:
    environ = {"WORKER_HOSTS": "a:0,b:1,c:x", "WORKER_INDEX": "3", "WORKER_PORT": "0"}
    names = [problem.name for problem in refused(environ)]
    assert names == [
        "WORKER_PORT",
        "WORKER_HOSTS, entry 0",
        "WORKER_HOSTS, entry 2",
        "WORKER_INDEX",
    ]


@given(st.text(), st.text())
def test_any_text_is_resolved_or_refused(hosts: str, index: str) -> None:
    try:
        found = worker_hosts.find(view(WORKER_HOSTS=hosts, WORKER_INDEX=index), 2222)
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017 -- both outcomes are right
    else:
        assert found is not None


NAMES = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,8}[a-z_])?(\.[a-z]{1,5})?", fullmatch=True)
HOSTS = st.one_of(
    NAMES.filter(lambda name: not name.isdigit()),
    st.ip_addresses(v=4, network="10.0.0.0/8").map(str),
    st.ip_addresses(v=6, network="fd00::/8").map("[{}]".format),
)
ADDRESSES = st.tuples(HOSTS, st.integers(1, 65535)).map("{0[0]}:{0[1]}".format)


@given(st.data(), st.lists(ADDRESSES, min_size=1, max_size=20, unique=True))
def test_what_is_accepted_survives_tf_config(data: st.DataObject, hosts: list[str]) -> None:
    index = data.draw(st.integers(0, len(hosts) - 1))
    separators = data.draw(st.lists(st.sampled_from([",", " ", "\n", " , "]), min_size=20))
    text = "".join(host + separator for host, separator in zip(hosts, separators, strict=False))
    found = worker_hosts.find(view(WORKER_HOSTS=text.rstrip(", "), WORKER_INDEX=str(index)), 2222)
    assert found is not None
    assert found.spec.to_json() == {"worker": hosts}
    again = tf_config.find(view(TF_CONFIG=found.tf_config_text()), 1)
    assert again is not None
    assert (again.spec, again.task, again.rank) == (found.spec, found.task, index)


def test_a_list_of_a_thousand_is_read_at_once() -> None:
    text = ",".join(f"10.0.{i // 250}.{i % 250}:2222" for i in range(1000))
    found = worker_hosts.find(view(WORKER_HOSTS=text, WORKER_INDEX="999"), 2222)
    assert isinstance(found.spec, ClusterSpec)
    assert found.rank == 999


@pytest.mark.parametrize("hosts", ["a,A.", "[::ffff:10.0.0.1],10.0.0.1", "a:2222,a."])
def test_two_spellings_of_an_address_are_one(refused: Callable, hosts: str) -> None:
    (problem,) = refused({"WORKER_HOSTS": hosts, "WORKER_INDEX": "0"})
    assert problem.accepted == "each address once"


def test_two_spellings_with_different_ports_are_two(answer: Callable) -> None:
    assert len(answer({"WORKER_HOSTS": "a:1,a.:2", "WORKER_INDEX": "0"}).ports) == 2

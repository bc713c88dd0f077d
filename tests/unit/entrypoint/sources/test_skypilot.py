"""SkyPilot's nodes.

Names and forms are those of docs/source/running-jobs/environment-variables.rst and
distributed-jobs.rst of https://github.com/skypilot-org/skypilot. The task ids are in its tables.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.settings.environ import Value
from entrypoint.sources.skypilot import find, settings
from harness.contracts import check_any, refusal, view

TWO = {
    "SKYPILOT_NODE_IPS": "10.128.0.5\n10.128.0.6",
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NUM_NODES": "2",
}


def test_one_address_a_line() -> None:
    assert find(view(**TWO), 2222).tf_config() == {
        "cluster": {"worker": ["10.128.0.5:2222", "10.128.0.6:2222"]},
        "task": {"type": "worker", "index": 1},
    }


def test_one_node_is_a_cluster_of_one() -> None:
    environ = view(SKYPILOT_NODE_IPS="1.2.3.4", SKYPILOT_NODE_RANK="0")
    assert find(environ, 7).spec.to_json() == {"worker": ["1.2.3.4:7"]}


def test_ipv6_needs_no_brackets_where_there_are_no_ports() -> None:
    environ = view(SKYPILOT_NODE_IPS="fd00::1\nfd00::2\n", SKYPILOT_NODE_RANK="0")
    assert find(environ, 1).spec.to_json() == {"worker": ["[fd00::1]:1", "[fd00::2]:1"]}


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        ({"SKYPILOT_NODE_IPS": ""}, "SKYPILOT_NODE_IPS", "one address per line"),
        ({"SKYPILOT_NODE_IPS": "10.0.0.1\nx y"}, "SKYPILOT_NUM_NODES", "3, the number"),
        ({"SKYPILOT_NODE_IPS": "a\n-b"}, "SKYPILOT_NODE_IPS, entry 1", "host:port"),
        ({"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.1"}, "SKYPILOT_NODE_IPS", "each address once"),
        ({"SKYPILOT_NODE_IPS": "127.0.0.1\n10.0.0.1"}, "SKYPILOT_NODE_IPS", "every other worker"),
        ({"SKYPILOT_NODE_RANK": "2"}, "SKYPILOT_NODE_RANK", "0 to 1, because SKYPILOT_NODE_IPS"),
        ({"SKYPILOT_NODE_RANK": ""}, "SKYPILOT_NODE_RANK", "0 to 1"),
        ({"SKYPILOT_NUM_NODES": "3"}, "SKYPILOT_NUM_NODES", "2, the number of lines"),
        ({"SKYPILOT_NUM_NODES": "x"}, "SKYPILOT_NUM_NODES", "2, the number"),
    ],
)
def test_refuses_what_does_not_fit(change: dict[str, str], name: str, says: str) -> None:
    (problem,) = refusal(find, view(**(TWO | change)))
    assert problem.name == name
    assert says in problem.accepted


def test_names_the_task() -> None:
    assert find(view(**TWO, SKYPILOT_TASK_ID="sky-1_a_1"), 2222).job == "SkyPilot task sky-1_a_1"
    assert find(view(**TWO), 2222).job == ""


@pytest.mark.parametrize("missing", ["SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK"])
def test_refuses_half_of_it(missing: str) -> None:
    some = {name: text for name, text in TWO.items() if name != missing}
    (problem,) = refusal(find, view(**some))
    assert (problem.name, problem.received) == (missing, None)


def test_a_count_of_nodes_alone_is_no_cluster() -> None:
    assert find(view(SKYPILOT_NUM_NODES="2"), 2222) is None


@pytest.mark.parametrize(
    ("task", "folder"),
    [
        ("sky-2023-07-06-21-18-31-563597_myclus_1", "sky-2023-07-06-21-18-31-563597_myclus_1"),
        (
            "sky-managed-2023-07-06-21-18-31-563597_my-job-name_1-0",
            "sky-managed-2023-07-06-21-18-31-563597_my-job-name_1-0",
        ),
        ("../../etc", ".._.._etc"),
        ("a b\né", "a_b__"),
    ],
)
def test_a_tasks_results_stay_in_one_folder(task: str, folder: str) -> None:
    found = settings(view(SKYPILOT_TASK_ID=task))
    assert found == {"TRAINER_RUN_DIR": Value(f"/runs/{folder}", "SKYPILOT_TASK_ID")}


@pytest.mark.parametrize("task", ["", ".", ".."])
def test_a_task_without_a_name_has_no_folder(task: str) -> None:
    assert settings(view(SKYPILOT_TASK_ID=task)) == {}


@pytest.mark.parametrize(("text", "expected"), [("8", "8"), ("0", None), ("", None), ("x", None)])
def test_counts_gpus_if_there_are_any(text: str, expected: str | None) -> None:
    found = settings(view(SKYPILOT_NUM_GPUS_PER_NODE=text)).get("GPUS_PER_WORKER")
    assert found == (expected and Value(expected, "SKYPILOT_NUM_GPUS_PER_NODE"))


@given(st.text(), st.text(), st.none() | st.text())
def test_any_text_is_resolved_or_refused(ips: str, rank: str, count: str | None) -> None:
    more = {} if count is None else {"SKYPILOT_NUM_NODES": count}
    check_any(find, view(SKYPILOT_NODE_IPS=ips, SKYPILOT_NODE_RANK=rank, **more))


@given(st.text())
def test_any_task_id_is_one_path_segment(task: str) -> None:
    for value in settings(view(SKYPILOT_TASK_ID=task)).values():
        folder = value.text.removeprefix("/runs/")
        assert folder.isascii()
        assert "/" not in folder
        assert folder.strip(".")


IPS = st.lists(st.ip_addresses(network="10.0.0.0/8").map(str), min_size=1, unique=True)


@given(st.data(), IPS)
def test_what_is_accepted_survives_tf_config(data: st.DataObject, ips: list[str]) -> None:
    rank = data.draw(st.integers(0, len(ips) - 1))
    end = data.draw(st.sampled_from(["", "\n"]))
    environ = view(
        SKYPILOT_NODE_IPS="\n".join(ips) + end,
        SKYPILOT_NODE_RANK=str(rank),
        SKYPILOT_NUM_NODES=str(len(ips)),
    )
    found = check_any(find, environ)
    assert found.spec.to_json() == {"worker": [f"{ip}:2222" for ip in ips]}
    assert found.rank == rank

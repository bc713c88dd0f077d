"""Kubernetes: Kubeflow Trainer's PET_ variables, and an Indexed Job's index for WORKER_HOSTS.

The PET_ values follow pkg/runtime/framework/plugins/torch/torch.go of
https://github.com/kubeflow/trainer. The job is that of
https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.sources.kubernetes import find
from harness.contracts import check_any, refusal, view

TRAIN_JOB = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "auto",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "test-job-node-0-0.test-job",
    "PET_MASTER_PORT": "29500",
}
INDEXED_JOB = {
    "WORKER_HOSTS": "example-job-0.headless-svc,example-job-1.headless-svc,"
    "example-job-2.headless-svc"
}


def test_nodes_are_named_after_the_first() -> None:
    assert find(view(**TRAIN_JOB), 2222).tf_config() == {
        "cluster": {
            "worker": ["test-job-node-0-0.test-job:2222", "test-job-node-0-1.test-job:2222"]
        },
        "task": {"type": "worker", "index": 1},
    }


def test_the_port_is_ours_and_not_torchs() -> None:
    assert {address.port for address in find(view(**TRAIN_JOB), 7000).spec.addresses} == {7000}


def test_one_node_is_a_cluster_of_one() -> None:
    one = TRAIN_JOB | {"PET_NNODES": "1", "PET_NODE_RANK": "0"}
    assert find(view(**one), 2222).spec.to_json() == {"worker": ["test-job-node-0-0.test-job:2222"]}


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        ({"PET_NNODES": "1:4"}, "PET_NNODES", "elastic"),
        ({"PET_NNODES": "0"}, "PET_NNODES", ""),
        ({"PET_NNODES": "x"}, "PET_NNODES", ""),
        ({"PET_NNODES": "999999999"}, "PET_NNODES", ""),
        ({"PET_NODE_RANK": "2"}, "PET_NODE_RANK", ""),
        ({"PET_NODE_RANK": "-1"}, "PET_NODE_RANK", ""),
        ({"PET_MASTER_ADDR": "job-master-0"}, "PET_MASTER_ADDR", "Set WORKER_HOSTS"),
        ({"PET_MASTER_ADDR": "a-node-0-0.b"}, "PET_MASTER_ADDR", "Set WORKER_HOSTS"),
        ({"PET_MASTER_ADDR": "a-node-0-1.a"}, "PET_MASTER_ADDR", "Set WORKER_HOSTS"),
        ({"PET_MASTER_ADDR": "10.0.0.1"}, "PET_MASTER_ADDR", "Set WORKER_HOSTS"),
        ({"PET_MASTER_ADDR": ""}, "PET_MASTER_ADDR", "Set WORKER_HOSTS"),
    ],
)
def test_refuses_what_it_cannot_use(change: dict[str, str], name: str, says: str) -> None:
    (problem,) = refusal(find, view(**(TRAIN_JOB | change)))
    assert problem.name == name
    assert says in problem.advice


@pytest.mark.parametrize("missing", ["PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR"])
def test_refuses_part_of_it(missing: str) -> None:
    some = {name: text for name, text in TRAIN_JOB.items() if name != missing}
    (problem,) = refusal(find, view(**some))
    assert (problem.name, problem.received) == (missing, None)


def test_reports_all_problems_together() -> None:
    bad = {"PET_NNODES": "x", "PET_NODE_RANK": "y", "PET_MASTER_ADDR": "z"}
    names = [problem.name for problem in refusal(find, view(**bad))]
    assert names == ["PET_MASTER_ADDR", "PET_NNODES", "PET_NODE_RANK"]


def test_torchs_other_variables_are_no_cluster() -> None:
    assert find(view(PET_NPROC_PER_NODE="1", PET_MASTER_PORT="29500"), 2222) is None


def test_an_indexed_job_counts_the_workers(answer: Callable) -> None:
    found = answer(INDEXED_JOB | {"JOB_COMPLETION_INDEX": "2"}).resolution
    assert found.rank == 2
    assert str(found.spec.addresses[2]) == "example-job-2.headless-svc:2222"


def test_the_same_index_twice_is_fine(answer: Callable) -> None:
    environ = INDEXED_JOB | {"JOB_COMPLETION_INDEX": "2", "WORKER_INDEX": "2"}
    assert answer(environ).resolution.rank == 2


def test_refuses_two_indices_that_differ_and_shows_both(refused: Callable) -> None:
    environ = INDEXED_JOB | {"JOB_COMPLETION_INDEX": "2", "WORKER_INDEX": "1"}
    (problem,) = refused(environ)
    assert problem.name == "WORKER_INDEX and JOB_COMPLETION_INDEX"
    assert problem.received == "1 (entry 1); 2 (entry 2)"
    assert "CLUSTER_SOURCE=worker_hosts" in problem.advice


def test_worker_index_wins_if_worker_hosts_is_picked_by_hand(answer: Callable) -> None:
    environ = INDEXED_JOB | {"JOB_COMPLETION_INDEX": "7", "WORKER_INDEX": "1"}
    assert answer(environ | {"CLUSTER_SOURCE": "worker_hosts"}).resolution.rank == 1


def test_the_index_counts_for_a_list_that_is_picked_by_hand(answer: Callable) -> None:
    environ = INDEXED_JOB | {"JOB_COMPLETION_INDEX": "1", "CLUSTER_SOURCE": "worker_hosts"}
    assert answer(environ).resolution.rank == 1


@pytest.mark.parametrize("index", ["3", "-1", "x", ""])
def test_refuses_an_index_outside_the_list(refused: Callable, index: str) -> None:
    (problem,) = refused(INDEXED_JOB | {"JOB_COMPLETION_INDEX": index})
    assert (problem.name, problem.received) == ("JOB_COMPLETION_INDEX", index)
    assert problem.accepted == "0 to 2, because WORKER_HOSTS names 3 workers"


@pytest.mark.parametrize("index", ["0", "9", "x"])
def test_an_indexed_job_without_hosts_is_something_else(answer: Callable, index: str) -> None:
    assert answer({"JOB_COMPLETION_INDEX": index}).resolution is None


@given(st.text(), st.text(), st.text())
def test_any_text_is_resolved_or_refused(count: str, rank: str, address: str) -> None:
    check_any(find, view(PET_NNODES=count, PET_NODE_RANK=rank, PET_MASTER_ADDR=address))


JOBS = st.from_regex("[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)


@given(st.data(), JOBS, st.integers(1, 50))
def test_what_is_accepted_survives_tf_config(data: st.DataObject, job: str, count: int) -> None:
    rank = data.draw(st.integers(0, count - 1))
    first = f"{job}-node-0-0.{job}"
    environ = view(PET_NNODES=str(count), PET_NODE_RANK=str(rank), PET_MASTER_ADDR=first)
    found = check_any(find, environ)
    expected = [f"{job}-node-0-{index}.{job}:2222" for index in range(count)]
    assert found.spec.to_json() == {"worker": expected}
    assert found.rank == rank

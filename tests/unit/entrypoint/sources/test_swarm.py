"""Docker Swarm: the slot of a replica is the index of WORKER_HOSTS.

`{{.Task.Slot}}` as in https://docs.docker.com/reference/cli/docker/service/create/ ("Create
services using templates"). Slots count from 1.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

HOSTS = {"WORKER_HOSTS": "worker-1,worker-2"}


@pytest.mark.parametrize(("slot", "index"), [("1", 0), ("2", 1)])
def test_slots_count_from_one(answer: Callable, slot: str, index: int) -> None:
    assert answer(HOSTS | {"SWARM_TASK_SLOT": slot}).resolution.rank == index


@pytest.mark.parametrize("slot", ["0", "3", "-1", "", "{{.Task.Slot}}"])
def test_refuses_a_slot_that_is_not_in_the_list(refused: Callable, slot: str) -> None:
    (problem,) = refused(HOSTS | {"SWARM_TASK_SLOT": slot})
    assert (problem.name, problem.received) == ("SWARM_TASK_SLOT", slot)
    assert problem.accepted == "1 to 2, because WORKER_HOSTS names 2 workers"


def test_a_slot_and_an_index_may_agree(answer: Callable) -> None:
    assert answer(HOSTS | {"SWARM_TASK_SLOT": "2", "WORKER_INDEX": "1"}).resolution.rank == 1


def test_refuses_a_slot_and_an_index_that_differ(refused: Callable) -> None:
    (problem,) = refused(HOSTS | {"SWARM_TASK_SLOT": "1", "WORKER_INDEX": "1"})
    assert problem.name == "WORKER_INDEX and SWARM_TASK_SLOT"
    assert problem.received == "1 (entry 1); 1 (entry 0)"


@pytest.mark.parametrize("slot", ["0", "1", "x"])
def test_a_slot_without_hosts_says_nothing(answer: Callable, slot: str) -> None:
    assert answer({"SWARM_TASK_SLOT": slot}).resolution is None

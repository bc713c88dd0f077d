"""The gate opens for all workers together, and leaves their ports free."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_all_are_released(cluster, count):
    workers = cluster(count).start_all()
    assert [worker.end() for worker in workers] == [None] * count


def test_every_worker_says_that_all_agree(cluster):
    workers = cluster(3).start_all()
    for worker in workers:
        worker.end()
        level = "INFO" if worker is workers[0] else "DEBUG"
        assert worker.lines[-1].startswith(f"{level} 3 workers are here and agree (")


def test_a_chief_task_is_the_chief(cluster):
    three = cluster(3, with_chief=True)
    late = three.start_all(1, 2)
    late[0].wait_for("waiting for chief-0 at 127.0.0.1:", "(the chief)")
    chief = three.start(0)
    assert [worker.end() for worker in [chief, *late]] == [None] * 3


@pytest.mark.parametrize("last", [0, 2])
def test_all_wait_for_the_last(cluster, last):
    three = cluster(3)
    early = three.start_all(*({0, 1, 2} - {last}))
    for worker in early:
        worker.wait_for("waiting for", f"worker-{last} at 127.0.0.{last + 1}:", "refused")
    three.start(last)
    assert [worker.end() for worker in early] == [None] * 2


def test_the_same_ports_can_meet_again_at_once(cluster):
    three = cluster(3)
    for _ in range(3):
        assert [worker.end() for worker in three.start_all()] == [None] * 3


def test_a_member_that_knows_who_is_missing_has_it_from_the_chief(cluster):
    four = cluster(4)
    first, second = four.start_all(0, 1)
    line = first.wait_for("2 of 4 workers", " 0 s", "worker-2 at", "worker-3 at")
    assert second.wait_for(line)
    assert [worker.end() for worker in [*four.start_all(2, 3), first, second]] == [None] * 4


def test_a_thousand_missing_workers_fit_into_a_line(cluster):
    many = cluster(40)
    chief = many.start(0, timeout_seconds=0.5)
    chief.end()
    assert "waiting for 39 of 40 workers" in str(chief.error)
    assert "and 29 more" in str(chief.error)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_end_of_the_bound_says_on_each_worker_who_is_missing_and_why(cluster, rank):
    three = cluster(3)
    three.start(1 - rank)
    error = three.start(rank, timeout_seconds=0.8).end()
    missing = f"worker-2 at {three.member(2).address}: refused"
    assert error.exit_code == 75
    for fact in ("0.8 s", "1 of 3 workers", " 1 s", missing):
        assert fact in str(error)
    three.start_all(rank, 2)


def test_a_member_that_gives_up_names_the_chief(cluster):
    two = cluster(2)
    error = two.start(1, timeout_seconds=0.5).end()
    assert f"waiting for worker-0 at {two.member(0).address} (the chief)" in str(error)
    assert "refused" in str(error)

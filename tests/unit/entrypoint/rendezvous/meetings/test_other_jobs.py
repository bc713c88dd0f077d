"""Workers of two jobs of a scheduler that use the same machines, ports and host list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from entrypoint.rendezvous.facts import host_list
from entrypoint.rendezvous.outcome import PeersMissingError

ONE, OTHER = "Slurm job 7.0", "Slurm job 8.0"


def of_job(cluster, job):
    return replace(cluster.facts, job=job)


def test_workers_of_two_jobs_do_not_meet(cluster):
    two = cluster(2)
    chief = two.start(0, facts=of_job(two, ONE))
    member = two.start(1, facts=of_job(two, OTHER))
    assert f"a worker of another program, {OTHER}; this is {ONE}" in chief.wait_for("worker-1 at")
    assert f"a worker of another program, {ONE}; this is {OTHER}" in member.wait_for("worker-0 at")
    for error in (chief.end(), member.end()):
        assert isinstance(error, PeersMissingError)
        assert "another program" in str(error)


@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_waits_until_another_job_has_left_the_port(cluster, which):
    three = cluster(3)
    others = [three.start(rank, facts=of_job(three, ONE)) for rank in range(3) if rank != which]
    wrong = three.start(which, facts=of_job(three, OTHER), expects_all_closed=False)
    others[-1].wait_for(f"worker-{which} at", "another program")
    wrong.kill()
    right = three.start(which, facts=of_job(three, ONE))
    assert [one.end() for one in (*others, right)] == [None] * 3


def test_another_job_with_another_list_contradicts_nothing(cluster):
    three = cluster(3)
    list_of_other = three.moved(worker_2="127.0.9.9:1")
    facts = replace(three.facts, job=OTHER, hosts=host_list(list_of_other), image="0.2.0")
    wrong = three.start(1, spec=list_of_other, facts=facts, expects_all_closed=False)
    others = [three.start(rank, facts=of_job(three, ONE)) for rank in (0, 2)]
    others[0].wait_for("worker-1 at", "another program")
    wrong.kill()
    right = three.start(1, facts=of_job(three, ONE))
    assert [one.end() for one in (*others, right)] == [None] * 3


@pytest.mark.parametrize("jobs", [(ONE, ""), ("", ONE), (ONE, ONE)])
def test_workers_meet_if_a_job_is_the_same_or_not_known(cluster, jobs):
    two = cluster(2)
    workers = [two.start(rank, facts=of_job(two, job)) for rank, job in enumerate(jobs)]
    assert [one.end() for one in workers] == [None, None]

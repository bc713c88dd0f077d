"""Workers that find themselves at another's address, over real sockets of one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from entrypoint.rendezvous.facts import host_list
from entrypoint.rendezvous.outcome import ContradictionError
from entrypoint.rendezvous.transport import sockets


@pytest.fixture
def one_machine(monkeypatch):
    """Let workers listen on all loopback addresses, as on all addresses of one machine."""
    monkeypatch.setattr(sockets, "listening_host", lambda *_: "")


def contradicted(workers):
    """Check that all workers ended with the same problems, and return the problems."""
    errors = [worker.end() for worker in workers]
    assert [type(error) for error in errors] == [ContradictionError] * len(errors), errors
    assert len({error.problems for error in errors}) == 1, errors
    return errors[0].problems


@pytest.mark.parametrize(("mine", "found"), [(0, 1), (1, 0)])
@pytest.mark.usefixtures("one_machine")
def test_a_worker_that_finds_itself_at_anothers_address(cluster, mine, found):
    two = cluster(2)
    port = two.member(0).address.port  # one machine with both addresses
    spec = two.moved(worker_0=f"127.0.0.1:{port}", worker_1=f"127.0.0.2:{port}")
    worker = two.start(mine, spec=spec, facts=replace(two.facts, hosts=host_list(spec)))
    (problem,) = contradicted([worker])
    assert (problem.received, problem.accepted) == (
        str(mine),
        f"{found}, because it answers at worker-{found}'s address 127.0.0.{found + 1}:{port}",
    )


@pytest.mark.usefixtures("one_machine")
def test_two_workers_that_both_believe_to_be_the_chief(cluster):
    two = cluster(2)
    port = two.member(1).address.port  # the second machine, to which both names resolve
    there = two.moved(worker_0=f"127.0.0.1:{port}")
    workers = [two.start(0), two.start(0, spec=there)]
    problems = contradicted(workers)
    assert [(problem.received, problem.accepted) for problem in problems] == [
        ("0", f"1, because it answers at worker-1's address {two.member(1).address}"),
    ]


@pytest.mark.usefixtures("one_machine")
def test_a_cluster_with_a_chief_names_tf_config(cluster):
    two = cluster(2, with_chief=True)
    port = two.member(0).address.port
    spec = two.moved(chief_0=f"127.0.0.1:{port}", worker_0=f"127.0.0.2:{port}")
    worker = two.start(1, spec=spec, facts=replace(two.facts, hosts=host_list(spec)))
    (problem,) = contradicted([worker])
    assert problem.name.startswith('TF_CONFIG "task" of worker-0 at')
    assert (problem.received, problem.accepted[:8]) == ("worker-0", "chief-0,")

"""Workers that do not agree end at once, all with the same message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from entrypoint.cluster.spec import ClusterSpec
from entrypoint.errors import Problem
from entrypoint.rendezvous.facts import host_list
from entrypoint.rendezvous.outcome import ContradictionError

pytestmark = pytest.mark.slow

SAME_LIST = "All workers need the same list in the same order."
IMAGE = "Use the same image everywhere."


def contradicted(workers):
    """Check that all workers ended at once with the same problems, and return the problems."""
    errors = [worker.end() for worker in workers]
    assert [type(error) for error in errors] == [ContradictionError] * len(errors), errors
    assert {error.exit_code for error in errors} == {78}
    assert len({error.problems for error in errors}) == 1, errors
    assert max(worker.seconds for worker in workers) < 5
    return errors[0].problems


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"image": "0.2.0 (abc)"},
            Problem(
                "image version of {it}", "0.2.0 (abc)", "0.1.0 (3a4601d), as {chief} has", IMAGE
            ),
        ),
        (
            {"tensorflow": "2.20.0"},
            Problem("TensorFlow version of {it}", "2.20.0", "2.21.0, as {chief} has", IMAGE),
        ),
        (
            {"settings": {"TRAINER_EPOCHS": "4", "TRAINER_SEED": "42"}},
            Problem("TRAINER_EPOCHS of {it}", "4", "3, as {chief} has"),
        ),
        (
            {"settings": {"TRAINER_EPOCHS": "3"}},
            Problem("TRAINER_SEED of {it}", "not set", "42, as {chief} has"),
        ),
        (
            {"settings": {}},
            Problem(
                "command of {it}",
                "a command that is not the trainer",
                "the trainer, as {chief} runs",
            ),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Problem) else None,
)
@pytest.mark.parametrize("odd", [1, 2])
def test_every_worker_says_who_differs_in_what(cluster, odd, change, problem):
    three = cluster(3)
    workers = three.start_all(*({0, 1, 2} - {odd}))
    workers.append(three.start(odd, facts=replace(three.facts, **change)))
    names = {
        "it": f"worker-{odd} at {three.member(odd).address}",
        "chief": f"worker-0 at {three.member(0).address}",
    }
    expected = Problem(
        problem.name.format(**names),
        problem.received,
        problem.accepted.format(**names),
        problem.advice,
    )
    assert contradicted(workers) == (expected,)


@pytest.mark.parametrize(
    ("fact", "of_workers", "name"),
    [
        ("gpus_per_worker", ["8", "", "4"], "GPUS_PER_WORKER"),
        ("min_workers", ["2", "", "3"], "MIN_WORKERS"),
        ("workspace", ["0f" * 8, "", "1e" * 8], "WORKSPACE_DIGEST"),
        ("devices", ["CPU", "", "GPU"], "kind of device to train on"),
    ],
)
def test_facts_are_compared_between_the_workers_that_give_them(cluster, fact, of_workers, name):
    three = cluster(3)
    workers = [
        three.start(rank, facts=replace(three.facts, **{fact: value}))
        for rank, value in enumerate(of_workers)
    ]
    (problem,) = contradicted(workers)
    address = three.member(2).address
    assert (problem.name, problem.received) == (f"{name} of worker-2 at {address}", of_workers[2])


def test_versions_that_are_not_known_contradict_nothing(cluster):
    two = cluster(2)
    workers = [two.start(0), two.start(1, facts=replace(two.facts, image="", tensorflow=""))]
    assert [worker.end() for worker in workers] == [None, None]


def test_all_problems_come_in_one_message_and_the_same_one_once(cluster):
    four = cluster(4)
    other = replace(four.facts, image="0.2.0", tensorflow="2.20.0")
    problems = contradicted([four.start(0), *four.start_all(1, 2, 3, facts=other)])
    names = [problem.name.partition(" of ")[0] for problem in problems]
    assert names == ["image version", "TensorFlow version"]
    for name in ("worker-1 at", "worker-2 at", "worker-3 at"):
        assert problems[0].name.count(name) == 1


def test_every_worker_of_many_hears_of_it(cluster):
    many = cluster(300)  # more than there are places for strangers
    other = replace(many.facts, image="0.2.0")
    workers = [many.start(0), *many.start_all(*range(1, 300), facts=other)]
    errors = [worker.end() for worker in workers]
    assert len({str(error) for error in errors}) == 1
    assert "worker-1 at" in str(errors[0])
    assert "and 294 more" in str(errors[0])


def test_a_list_in_another_order_is_shown_where_it_differs_first(cluster):
    three = cluster(3)
    mine = [str(address) for address in three.spec.addresses]
    swapped = three.moved(worker_1=mine[2], worker_2=mine[1])
    workers = three.start_all(0, 1)
    facts = replace(three.facts, hosts=host_list(swapped))
    # Its list has worker-2 at the others' address of worker-1. It runs at their worker-2's address.
    workers.append(three.start(2, facts=facts))
    (problem,) = contradicted(workers)
    assert problem == Problem(
        "host list of worker-2 at 127.0.0.1",
        f"entry 2: worker-1={mine[2]}",
        f"worker-1={mine[1]}, as worker-0 at {mine[0]} has",
        SAME_LIST,
    )


def test_a_list_of_another_length_is_told_by_its_length(cluster):
    three = cluster(3)
    shorter = ClusterSpec(three.spec.members[:2])
    workers = three.start_all(0, 2)
    workers.append(
        three.start(1, spec=shorter, facts=replace(three.facts, hosts=host_list(shorter)))
    )
    (problem,) = contradicted(workers)
    assert (problem.received, problem.accepted) == (
        "2 entries",
        f"3 entries, as worker-0 at {three.member(0).address} has",
    )


def test_a_difference_far_down_a_long_list_is_found(cluster):
    many = cluster(250)
    last = many.moved(worker_249="127.9.9.9:1")
    workers = [many.start(0), many.start(1, facts=replace(many.facts, hosts=host_list(last)))]
    (problem,) = contradicted(workers)
    assert problem.received == "entry 250: worker-249=127.9.9.9:1"


def test_swapped_lists_where_both_believe_to_be_the_chief(cluster):
    two = cluster(2)
    a, b = (str(address) for address in two.spec.addresses)
    swapped = two.moved(worker_0=b, worker_1=a)
    workers = [two.start(0)]
    workers.append(two.start(0, spec=swapped, facts=replace(two.facts, hosts=host_list(swapped))))
    for worker in workers:
        error = worker.end()
        assert isinstance(error, ContradictionError)
        (problem,) = error.problems
        assert problem.name in {f"host list of worker-0 at {a}", f"host list of worker-0 at {b}"}


def test_a_worker_with_another_chief_ends_all_whom_it_reaches(cluster):
    """Its list names the others' worker-1 as the chief. No other list has it."""
    three = cluster(3)
    b = three.member(1).address
    workers = three.start_all(0, 1)
    workers[1].wait_for("waiting for 1 of 3 workers", "worker-2")  # the chief has told it
    spec = ClusterSpec.of_workers([three.member(1).address, cluster(1).member(0).address])
    workers.append(three.start(1, spec=spec, facts=replace(three.facts, hosts=host_list(spec))))
    (problem,) = contradicted(workers)
    assert problem.name == f"host list of worker-1 at {b}"
    assert problem.received == "3 entries"
    assert problem.accepted == f"2 entries, as worker-1 at {spec.members[1].address} has"


def test_two_workers_with_one_index(cluster):
    three = cluster(3)
    workers = three.start_all(0, 1)
    workers[1].wait_for("waiting for 1 of 3 workers", "worker-2")
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    workers.append(three.start(1, spec=elsewhere))
    (problem,) = contradicted(workers)
    assert problem == Problem(
        "WORKER_INDEX of worker-1 at 127.0.0.1",
        "1",
        "an index that no other worker has",
        "Another worker-1 runs at 127.0.0.1.",
    )


def test_two_workers_with_one_index_one_of_which_cannot_come(cluster):
    three = cluster(3)
    lost = three.moved(worker_0=str(cluster(1).member(0).address))
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    workers = [three.start(0), three.start(1, spec=lost), three.start(1, spec=elsewhere)]
    (problem,) = contradicted(workers)
    assert problem == Problem(
        f"WORKER_INDEX of worker-1 at {three.member(1).address}",
        "1",
        "an index that no other worker has",
        "Another worker-1 runs at 127.0.0.1.",
    )


def test_a_worker_at_anothers_address(cluster):
    three = cluster(3)
    b = three.member(1).address
    misplaced = three.moved(worker_2=str(b), worker_1=str(three.member(2).address))
    workers = [three.start(0), three.start(2, spec=misplaced)]
    (problem,) = contradicted(workers)
    assert problem == Problem(
        f"WORKER_INDEX of worker-2 at {b}",
        "2",
        f"1, because it answers at worker-1's address {b}",
        "If the index is right, the list or the name 127.0.0.2 is wrong.",
    )


def test_one_that_comes_while_the_end_is_told_is_told_too(cluster):
    four = cluster(4)
    workers = four.start_all(0, 1)
    workers.append(four.start(2, facts=replace(four.facts, image="0.2.0")))
    workers.append(four.start(3, facts=replace(four.facts, tensorflow="2.20.0")))
    assert len(contradicted(workers)) == 2

"""After a loss, the survivors' commands keep their processes, and all form another ring."""

from __future__ import annotations

import errno
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from harness.neighbours import Entrypoint, Entrypoints
from harness.waiting import wait_until

SECONDS = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Entrypoints]]:
    """Return a function that makes a cluster. Nothing of it is left when the test ends."""
    with ExitStack() as stack:
        yield lambda size, **settings: stack.enter_context(Entrypoints(size, tmp_path, settings))


def is_closed(address: tuple[str, int]) -> bool:
    with socket.socket() as stranger:
        return stranger.connect_ex(address) == errno.ECONNREFUSED


def reaches(worker: Entrypoint, state: str) -> None:
    """Wait until a worker's status shows a state."""
    wait_until(lambda: worker.status.state == state, SECONDS, state, lambda: str(worker.status))


def begun(worker: Entrypoint) -> int:
    """Return how many commands a worker has started."""
    return len([said for said in worker.said if "begins" in said])


@pytest.mark.parametrize(
    "lost",
    [(1,), *(pytest.param(lost, marks=pytest.mark.long) for lost in [(0,), (2,), (1, 2), (0, 2)])],
    ids=str,
)
def test_the_commands_of_those_that_stay_keep_their_processes(cluster, lost):
    three = cluster(3)
    workers, generation = three.start_all()
    for rank in lost:
        workers[rank].kill_command()
    three.ring_after(workers, generation)
    assert [begun(worker) for worker in workers] == [1 + (rank in lost) for rank in range(3)]


@pytest.mark.parametrize("lost", [pytest.param(1, marks=pytest.mark.long), 2])
def test_fewer_go_on_and_take_in_the_lost_one_when_it_asks(cluster, lost):
    three = cluster(3, MIN_WORKERS="2", REGROUP_SECONDS="0")
    workers, generation = three.start_all()
    workers[lost].kill_command()
    three.ring_after(workers, generation)
    assert [begun(worker) for worker in workers] == [1 + (rank == lost) for rank in range(3)]
    for worker in workers:
        sizes = [said["ring"]["size"] for said in worker.said if "ring" in said]
        # On a busy machine, a ring may break at once and form again. So there may be more of each.
        assert sizes[0] == sizes[-1] == 3, worker.lines
        assert set(sizes) == ({3} if worker.rank == lost else {2, 3}), worker.lines
        late = [said["comes_late"] for said in worker.said if "begins" in said]
        assert late == (["0", "1"] if worker.rank == lost else ["0"])


@pytest.mark.long
def test_a_ring_that_breaks_by_itself_costs_nobody_the_process(cluster):
    three = cluster(3)
    workers, generation = three.start_all()
    for worker in workers:
        worker.break_ring()
        generation = three.ring_after(workers, generation)
    assert [begun(worker) for worker in workers] == [1, 1, 1]


@pytest.mark.long
def test_one_that_fails_again_and_again_before_it_asks_is_awaited(cluster):
    three = cluster(3, FAILING_RESTARTS="1 2")
    workers, generation = three.start_all()
    workers[2].kill_command()
    three.ring_after(workers, generation)
    assert [begun(worker) for worker in workers] == [1, 1, 4]
    workers[2].wait_for_line("worker-0 and others wait: the command starts")


@pytest.mark.long
def test_a_new_container_takes_the_place_of_one_that_is_gone(cluster):
    three = cluster(3)
    workers, generation = three.start_all()
    workers[0].remove()
    workers[1].wait_for_line("waiting for worker-0 at", "(the chief)", "refused")
    workers[0] = three.start(0)
    three.ring_after(workers, generation)
    assert [begun(worker) for worker in workers] == [1, 1, 1]


def test_a_worker_shows_that_it_waits_and_ends_when_it_is_told_to(cluster):
    two = cluster(2, STOP_GRACE_SECONDS=f"{SECONDS:g}")
    workers, _ = two.start_all()
    assert workers[0].status.state == "running"
    workers[1].remove()
    reaches(workers[0], "waiting")
    workers[0].wait_for_line("waiting for 1 of 2 workers", "worker-1 at", "refused")
    assert "worker-1 at" in workers[0].status.detail
    assert not is_closed(two.addresses[0])
    processes = workers[0].processes()
    begin = time.monotonic()
    workers[0].process.send_signal(signal.SIGTERM)
    assert workers[0].end() == 143
    assert time.monotonic() - begin < SECONDS / 2  # before the grace period ends
    assert not any(Path(f"/proc/{one}").exists() for one in processes)
    assert is_closed(two.addresses[0])
    assert workers[0].status.state == "stopped"


@pytest.mark.long
def test_after_the_wait_the_status_is_what_it_was_and_has_counted_the_wait(cluster):
    two = cluster(2)
    workers, generation = two.start_all()
    workers[1].kill_command()
    reaches(workers[0], "waiting")
    two.ring_after(workers, generation)
    reaches(workers[0], "running")
    assert workers[0].status.gate_waits == 2
    workers[0].process.send_signal(signal.SIGTERM)
    workers[0].end()
    assert workers[0].status.gate_waits == 2  # noted by another process than before


@pytest.mark.long
def test_who_waits_in_vain_ends_with_75_and_says_for_whom(cluster):
    three = cluster(3, RENDEZVOUS_TIMEOUT="10", MAX_RESTARTS="0")
    workers, _ = three.start_all()
    workers[2].remove()
    for worker in workers[:2]:
        assert worker.end() == 75
        assert worker.said[-1]["code"] == 75
        assert "gave up after 10 s" in worker.said[-1]["error"]
        assert "worker-2 at" in worker.said[-1]["error"]


@pytest.mark.long
def test_one_that_was_frozen_and_replaced_finds_no_place_when_it_thaws(cluster):
    three = cluster(3, RENDEZVOUS_TIMEOUT="15", MAX_RESTARTS="0")
    workers, generation = three.start_all()
    frozen = workers[2]
    frozen.signal_all(signal.SIGSTOP)
    workers[0].break_ring()
    workers[2] = three.start(2)
    generation = three.ring_after(workers, generation)
    frozen.signal_all(signal.SIGCONT)
    frozen.wait_for_line("waiting for worker-0 at", "(the chief)", "refused")
    assert frozen.end() == 75
    assert [worker.ring["generation"] for worker in workers] == [generation] * 3


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3, 5])
def test_whatever_happens_when_all_are_one_ring_again(cluster, size):
    chance = random.Random(size)
    many = cluster(size)
    workers, generation = many.start_all()
    for _ in range(15):
        for _ in range(chance.choice([1, 1, 2, 3])):
            disturb(many, workers, chance)
            time.sleep(chance.choice([0, 0.05, 0.3, 1]))  # the others may be anywhere by then
        generation = many.ring_after(workers, generation)


@pytest.mark.long
@pytest.mark.parametrize("size", [3, 5])
def test_there_is_never_a_ring_without_worker_0_and_a_majority(cluster, size):
    chance = random.Random(size)
    many = cluster(size, MIN_WORKERS=f"{size // 2 + 1}", REGROUP_SECONDS="0.2")
    workers, generation = many.start_all()
    for _ in range(12):
        for _ in range(chance.choice([1, 1, 2, 3])):
            disturb(many, workers, chance)
            time.sleep(chance.choice([0, 0.05, 0.3, 1]))
        generation = many.ring_after(workers, generation)
    places = {}
    for worker in many.started:
        for ring in (said["ring"] for said in worker.said if "ring" in said):
            found = places.setdefault(ring["generation"], [])
            found.append((worker.rank, ring["rank"], ring["size"]))
    smaller = False
    for ring in places.values():
        (of_all,) = {size for _, _, size in ring}
        smaller |= of_all < size
        assert size // 2 < of_all <= size
        assert len({rank for _, rank, _ in ring}) == len(ring)  # each rank belongs to one worker
        assert len({worker for worker, _, _ in ring}) == len(ring)
        assert all((worker == 0) == (rank == 0) for worker, rank, _ in ring)
    assert smaller, "MIN_WORKERS has made no difference"


def disturb(many: Entrypoints, workers: list[Entrypoint], chance: random.Random) -> None:
    """Kill, replace, freeze or disconnect one of the workers, at random."""
    one = chance.choice(workers)
    what = chance.choice(["kill", "kill", "replace", "break", "freeze"])
    with suppress(ProcessLookupError):  # its command has ended, and has not begun again
        if what == "kill":
            one.kill_command()
        elif what == "replace":
            one.remove()
            workers[one.rank] = many.start(one.rank)
        elif what == "break":
            one.break_ring()
        else:
            one.signal_all(signal.SIGSTOP)
            time.sleep(chance.uniform(0, 2))
            one.signal_all(signal.SIGCONT)
            one.break_ring()

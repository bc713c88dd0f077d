"""Who goes on in the same process after another worker of the ring was lost, and who does not."""

import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster_trainer.collectives import group
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import Aborted, OutOfStep, PeerLost, RingError
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.fits.lost_worker import MOST_IN_VAIN, Survivor
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.status_file import StatusFile
from cluster_trainer.settings.task import Task


@dataclass
class Fit:
    step: int = 0
    begins_again: bool = True


class Meetings:
    """Makes this worker's part of one ring after the other; nobody is at the other ends."""

    def __init__(self) -> None:
        self.held: list[socket.socket] = []
        self.rings: list[Ring] = []
        self.place = (0, 2)

    def connect(self) -> Ring:
        pairs = [socket.socketpair() for _ in range(2)]
        self.held += [pair[1] for pair in pairs]
        ring = Ring(*self.place, len(self.rings) + 1, pairs[0][0], pairs[1][0])
        self.rings.append(ring)
        return ring


@pytest.fixture
def meetings() -> Iterator[Meetings]:
    made = Meetings()
    yield made
    for closing in (*made.rings, *made.held):
        closing.close()


@pytest.fixture(autouse=True)
def ring(meetings: Meetings) -> Iterator[RenewableRing]:
    found = RenewableRing(meetings.connect)
    group.use(found)
    yield found
    group.use(None)


@pytest.fixture
def survivor() -> Survivor:
    said: list[str] = []
    made = Survivor(
        Task("worker", 0, 2), StopRequest(lambda *_: None), StatusFile(None), said.append
    )
    made.said = said  # type: ignore[attr-defined]
    return made


class Work:
    """Fails with each of these errors in turn, and then ends well."""

    def __init__(self, *errors: RingError) -> None:
        self.errors, self.asked = list(errors), []

    def __call__(self, is_again: bool) -> str:  # noqa: FBT001
        self.asked.append(is_again)
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def lost() -> PeerLost:
    return PeerLost("rank 1 was lost: closed", 1)


@pytest.mark.parametrize("error", [lost(), Aborted("rank 1 has failed", 1)])
def test_it_is_done_again_in_another_ring(ring, meetings, survivor, error) -> None:
    work = Work(error)
    assert survivor.run(work, lambda: Fit(5)) == "done"
    assert work.asked == [False, True]
    assert ring.generation == len(meetings.rings) == 2
    assert "worker-1 was lost" in survivor.said[0]


def test_a_loss_before_the_fit_is_known_is_one_too(survivor) -> None:
    assert survivor.run(Work(lost()), lambda: None) == "done"


def test_who_is_out_of_step_is_not_lost(meetings, survivor) -> None:
    with pytest.raises(OutOfStep):
        survivor.run(Work(OutOfStep("another operation", 1)), lambda: Fit(5))
    assert len(meetings.rings) == 1


def test_a_fit_that_cannot_begin_again_needs_a_new_process(meetings, survivor) -> None:
    with pytest.raises(PeerLost):
        survivor.run(Work(lost()), lambda: Fit(5, begins_again=False))
    assert len(meetings.rings) == 1


def test_what_is_not_the_first_use_of_the_ring_needs_a_new_process(ring, meetings, survivor):
    meetings.rings[0].abort("so that nobody is waited for")
    with pytest.raises(Aborted):
        ring.barrier()
    with pytest.raises(PeerLost):
        survivor.run(Work(lost()), lambda: Fit(5))
    assert len(meetings.rings) == 1


def test_without_a_ring_nothing_is_done_again(survivor) -> None:
    group.use(None)
    with pytest.raises(PeerLost):
        survivor.run(Work(lost()), lambda: Fit(5))


def test_losses_without_a_step_in_between_come_to_an_end(survivor) -> None:
    work = Work(*[lost() for _ in range(100)])
    with pytest.raises(PeerLost):
        survivor.run(work, lambda: Fit(5))
    assert len(work.asked) == 2 + MOST_IN_VAIN - 1


def test_losses_with_steps_in_between_do_not(survivor) -> None:
    steps = iter(range(1, 1000))
    work = Work(*[lost() for _ in range(20)])
    assert survivor.run(work, lambda: Fit(next(steps))) == "done"


def test_another_place_in_the_new_ring_is_refused(meetings, survivor) -> None:
    meetings.place = (1, 2)
    with pytest.raises(OutOfStep, match="was 0 of 2, and is 1 of 2"):
        survivor.run(Work(lost()), lambda: Fit(5))


def test_a_stop_while_it_waits_ends_the_process_at_once(meetings) -> None:
    ended = []
    stop = StopRequest(lambda code, _: ended.append(code))
    calls = 0

    def connect() -> Ring:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGTERM)
        return meetings.connect()

    group.use(RenewableRing(connect))
    with stop.handled():
        Survivor(Task("worker", 0, 2), stop, StatusFile(None), print).run(Work(lost()), Fit)
    assert ended == [128 + signal.SIGTERM]
    assert not stop.ends_at_once

"""Workers that continue in the same process after a loss in the ring, and those that do not."""

import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import (
    Aborted,
    OtherCall,
    OutOfStep,
    PeerLost,
    PeerUnfit,
    RingError,
)
from cluster_trainer.collectives.ring.headers import Record, Word
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.fits.elastic_recovery import (
    INTERRUPTIONS,
    MOST_IN_VAIN,
    ElasticRecovery,
    explained,
)
from cluster_trainer.problems import (
    ConfigurationError,
    NotRehearsedError,
    PeerLostError,
    RehearsedError,
    StopRequestedError,
    WorkerIsBackError,
)
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.status_file import StatusFile
from cluster_trainer.settings.task import Task


@dataclass
class Fit:
    step: int = 0
    begins_again: bool = True
    has_trained: bool = True


class Meetings:
    """Makes this worker's part of one ring after another. No worker is at the other ends."""

    def __init__(self) -> None:
        self.held: list[socket.socket] = []
        self.rings: list[Ring] = []
        self.place = (0, 2)
        self.members: tuple[int, ...] | None = None

    def connect(self) -> Ring:
        pairs = [socket.socketpair() for _ in range(2)]
        self.held += [pair[1] for pair in pairs]
        generation, ends = len(self.rings) + 1, (pairs[0][0], pairs[1][0])
        ring = Ring(*self.place, generation, *ends, members=self.members)
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
    process_ring.use(found)
    yield found
    process_ring.use(None)


@pytest.fixture
def recovery() -> ElasticRecovery:
    said: list[str] = []
    made = ElasticRecovery(
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


def done_by(
    recovery: ElasticRecovery,
    work: Callable[[bool], str],
    fit: Callable[[], Fit | None],
    rehearse: Callable[[], None],
) -> str:
    """Do some work as `fit` in fits/fit.py does."""
    recovery.meet()
    if recovery.comes_late:
        recovery.come_late(rehearse)
    while True:
        try:
            return work(recovery.is_again)
        except INTERRUPTIONS as error:
            waiting = recovery.interrupted(error, fit())
        recovery.meet_again(waiting)


def no_rehearsal() -> None:
    raise AssertionError("this worker was there from the beginning")


def lost() -> PeerLost:
    return PeerLost("rank 1 was lost: closed", 1)


@pytest.mark.parametrize("error", [lost(), Aborted("rank 1 has failed", 1)])
def test_it_is_done_again_in_another_ring(ring, meetings, recovery, error) -> None:
    work = Work(error)
    assert done_by(recovery, work, lambda: Fit(5), no_rehearsal) == "done"
    assert work.asked == [False, True]
    assert ring.generation == len(meetings.rings) == 2
    assert "worker-1 was lost" in recovery.said[0]


def test_a_failure_of_its_own_is_not_told_as_anothers_loss(recovery) -> None:
    assert (
        done_by(
            recovery,
            Work(Aborted("MemoryError within an operation", 0)),
            lambda: Fit(5),
            no_rehearsal,
        )
        == "done"
    )
    assert "this worker failed" in recovery.said[0]


def test_the_work_is_told_that_there_was_training_before_a_loss(recovery) -> None:
    fits = iter([Fit(0), Fit(0, has_trained=False)])
    assert done_by(recovery, Work(lost(), lost()), lambda: next(fits), no_rehearsal) == "done"
    assert recovery.has_trained


def test_a_loss_before_the_fit_is_known_is_one_too(recovery) -> None:
    assert done_by(recovery, Work(lost()), lambda: None, no_rehearsal) == "done"


def test_who_is_out_of_step_is_not_lost(meetings, recovery) -> None:
    with pytest.raises(OutOfStep):
        done_by(recovery, Work(OutOfStep("another operation", 1)), lambda: Fit(5), no_rehearsal)
    assert len(meetings.rings) == 1


def test_a_fit_that_cannot_begin_again_needs_a_new_process(meetings, recovery) -> None:
    with pytest.raises(PeerLost):
        done_by(recovery, Work(lost()), lambda: Fit(5, begins_again=False), no_rehearsal)
    assert len(meetings.rings) == 1


def test_what_is_not_the_first_use_of_the_ring_needs_a_new_process(ring, meetings, recovery):
    meetings.rings[0].abort("so that nobody is waited for")
    with pytest.raises(Aborted):
        ring.barrier()
    with pytest.raises(PeerLost):
        done_by(recovery, Work(lost()), lambda: Fit(5), no_rehearsal)
    assert len(meetings.rings) == 1


def test_without_a_ring_nothing_is_done_again(recovery) -> None:
    process_ring.use(None)
    with pytest.raises(PeerLost):
        done_by(recovery, Work(lost()), lambda: Fit(5), no_rehearsal)


@pytest.mark.parametrize("fit", [Fit(5), None], ids=["in a fit", "before it"])
def test_losses_without_a_step_in_between_come_to_an_end(recovery, fit) -> None:
    work = Work(*[lost() for _ in range(100)])
    with pytest.raises(PeerLost):
        done_by(recovery, work, lambda: fit, no_rehearsal)
    assert len(work.asked) == 2 + MOST_IN_VAIN - 1


def test_losses_with_steps_in_between_do_not(recovery) -> None:
    steps = iter(range(1, 1000))
    work = Work(*[lost() for _ in range(20)])
    assert done_by(recovery, work, lambda: Fit(next(steps)), no_rehearsal) == "done"


@pytest.fixture
def of_three(meetings: Meetings) -> Iterator[RenewableRing]:
    """A ring of worker-0 and worker-2, which go on without worker-1."""
    meetings.members = (0, 2)
    found = RenewableRing(meetings.connect, most=3)
    process_ring.use(found)
    yield found
    process_ring.use(None)


@pytest.fixture
def of_three_survivor() -> ElasticRecovery:
    said: list[str] = []
    made = ElasticRecovery(
        Task("worker", 0, 3), StopRequest(lambda *_: None), StatusFile(None), said.append
    )
    made.said = said  # type: ignore[attr-defined]
    return made


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    logger = logging.getLogger("trainer")
    logger.propagate, before = True, logger.propagate
    caplog.set_level(logging.INFO, "trainer")
    yield caplog
    logger.propagate = before


def test_a_rank_of_a_smaller_ring_is_called_by_its_name(of_three, of_three_survivor, heard):
    done_by(of_three_survivor, Work(lost()), lambda: Fit(5), no_rehearsal)
    assert of_three.members == (0, 2)
    assert of_three_survivor.said[0].startswith("worker-2 was lost")
    assert "enough of them (MIN_WORKERS)" in of_three_survivor.said[0]
    assert "continuing with 2 of 3 workers (worker-1 is missing)" in heard.text


def test_a_worker_that_is_back_is_taken_in_and_is_no_loss(
    meetings, of_three, of_three_survivor, heard
):
    came_back = [WorkerIsBackError("worker-1") for _ in range(20)]
    work = Work(*came_back)  # type: ignore[arg-type]

    def connect_all() -> Ring:
        meetings.place, meetings.members = (0, 3), None
        return meetings.connect()

    of_three._connect = connect_all  # noqa: SLF001
    for ring in meetings.rings:
        ring.abort("so that nobody is waited for")
    assert not of_three_survivor.goes_on

    def run(is_again: bool) -> str:  # noqa: FBT001
        assert of_three_survivor.goes_on
        meetings.rings[-1].abort("so that nobody is waited for")
        return work(is_again)

    assert done_by(of_three_survivor, run, lambda: Fit(412), no_rehearsal) == "done"
    assert work.asked == [False] + [True] * 20
    assert of_three.size == 3
    assert of_three_survivor.said[0] == "worker-1 is back: it joins after step 412"
    assert "all 3 workers are here again" in heard.text


def test_what_cannot_be_done_again_is_not_to_be_interrupted(ring, meetings, recovery) -> None:
    meetings.rings[0].abort("so that nobody is waited for")
    with pytest.raises(Aborted):
        ring.barrier()
    assert done_by(recovery, Work(), lambda: Fit(5), no_rehearsal) == "done"
    assert not recovery.goes_on


def test_a_stop_that_came_before_the_loss_ends_the_fit(meetings) -> None:
    stop = StopRequest(lambda *_: None)
    stop.signal_number = signal.SIGTERM
    recovery = ElasticRecovery(Task("worker", 0, 2), stop, StatusFile(None), print)
    with pytest.raises(StopRequestedError):
        done_by(recovery, Work(lost()), lambda: Fit(5), no_rehearsal)
    assert len(meetings.rings) == 1
    assert not stop.ends_at_once


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

    process_ring.use(RenewableRing(connect))
    with stop.handled():
        recovery = ElasticRecovery(Task("worker", 0, 2), stop, StatusFile(None), print)
        done_by(recovery, Work(lost()), Fit, no_rehearsal)
    assert ended == [128 + signal.SIGTERM]
    assert not stop.ends_at_once


def test_so_does_a_stop_while_it_waits_for_the_first_ring(meetings) -> None:
    ended = []
    stop = StopRequest(lambda code, _: ended.append(code))

    def form() -> RenewableRing:
        signal.raise_signal(signal.SIGTERM)
        return RenewableRing(meetings.connect)

    process_ring.offer(form)
    with stop.handled():
        recovery = ElasticRecovery(Task("worker", 0, 2), stop, StatusFile(None), print)
        done_by(recovery, Work(), Fit, no_rehearsal)
    assert ended == [128 + signal.SIGTERM]
    assert not stop.ends_at_once


def comes_late(meetings: Meetings) -> RenewableRing:
    ring = RenewableRing(meetings.connect, most=3, comes_late=True)
    process_ring.use(ring)
    return ring


def test_who_comes_late_rehearses_before_it_meets_the_others(meetings, of_three_survivor, heard):
    meetings.rings.clear()
    ring = comes_late(meetings)
    seen = []

    def rehearse() -> None:
        assert not ring.is_met
        seen.append((ring.rank, ring.size, ring.members))
        seen.append(ring.all_gather(b"mine"))
        seen.append(ring.all_reduce(np.ones(2, np.float32)).tolist())
        raise RehearsedError

    work = Work()
    assert done_by(of_three_survivor, work, lambda: None, rehearse) == "done"
    assert seen == [(0, 3, (0, 1, 2)), [b"mine"] * 3, [3.0, 3.0]]
    assert work.asked == [True]
    assert of_three_survivor.has_trained
    assert of_three_survivor.goes_on
    assert len(meetings.rings) == 1
    assert ring.members == (0, 1)
    first, then, *_ = heard.messages
    assert first == "the others train already: this worker prepares meanwhile"
    assert then == "a first step is compiled: asking to join"
    assert "ready to train" in of_three_survivor.said[0]


def test_who_cannot_rehearse_says_why_and_that_nothing_is_compiled(
    meetings, of_three_survivor, heard
):
    meetings.rings.clear()
    ring = comes_late(meetings)

    def rehearse() -> None:
        raise NotRehearsedError("Own may prepare the model")

    assert done_by(of_three_survivor, Work(), lambda: None, rehearse) == "done"
    assert "nothing is compiled before they pause: Own may prepare the model" in heard.messages
    assert "a first step is compiled" not in heard.text
    assert ring.is_met


def test_what_fails_in_a_rehearsal_fails_before_the_others_are_met(meetings, of_three_survivor):
    meetings.rings.clear()
    ring = comes_late(meetings)

    def rehearse() -> None:
        raise ValueError("the model is wrong")

    with pytest.raises(ValueError, match="the model is wrong"):
        done_by(of_three_survivor, Work(), lambda: None, rehearse)
    assert not ring.is_met
    assert not meetings.rings


def test_who_comes_late_and_uses_the_ring_otherwise_first_meets_the_others_for_it(
    meetings, of_three_survivor
):
    meetings.rings.clear()
    ring = comes_late(meetings)
    told: list[int] = []
    ring.tell_of_renewals(lambda: told.append(ring.rank))
    assert (ring.operations, ring.error) == (0, None)
    ring.abort("not there")  # no ring is formed for it
    assert not meetings.rings
    assert (ring.rank, ring.size) == (0, 2)
    assert told == [0]
    meetings.rings[0].abort("so that nobody is waited for")
    with pytest.raises(Aborted):
        ring.barrier()
    work = Work()
    done_by(of_three_survivor, work, lambda: None, no_rehearsal)
    assert work.asked == [False]


def other_call(rank: int, seen_by: int | None = None) -> OtherCall:
    """Return the error of a rank that is at another call than the rank that has seen it."""
    error = OtherCall("the worker of rank 1 is at predict, that of rank 0 at fit", rank)
    if seen_by is not None:
        error.record = Record(Word.OTHER_CALL, seen_by, rank, 1)
    return error


def new_to(ring: RenewableRing, *ranks: int) -> None:
    ring._newcomers = frozenset(ranks)  # noqa: SLF001


@pytest.mark.parametrize("error", [other_call(1), other_call(0, seen_by=1)])
def test_a_newcomer_at_another_call_is_lost_to_the_others(
    meetings, of_three, of_three_survivor, error
):
    new_to(of_three, 1)
    assert done_by(of_three_survivor, Work(error), lambda: Fit(5), no_rehearsal) == "done"
    assert len(meetings.rings) == 3  # one is the fixture's `ring`
    assert of_three_survivor.said[0].startswith("worker-2 does not fit, and exits")


@pytest.mark.usefixtures("of_three")
def test_one_that_answers_otherwise_than_the_others_is_lost_to_them(of_three_survivor):
    unfit = PeerUnfit("rank 1, which is new, differs in its data", 1)
    assert done_by(of_three_survivor, Work(unfit), lambda: Fit(5), no_rehearsal) == "done"
    assert of_three_survivor.said[0].startswith("worker-2 does not fit, and exits")


def test_the_newcomer_itself_ends_and_says_what_differs(
    meetings, of_three, of_three_survivor, heard
):
    new_to(of_three, 0)
    with pytest.raises(ConfigurationError, match="at predict"):
        done_by(of_three_survivor, Work(other_call(1)), lambda: Fit(5), no_rehearsal)
    assert "makes other calls than the others" in heard.text
    assert len(meetings.rings) == 2


def test_of_two_newcomers_nobody_knows_which_one_does_not_fit(of_three, of_three_survivor):
    new_to(of_three, 0, 1)
    with pytest.raises(PeerLostError, match="one of two new workers"):
        done_by(of_three_survivor, Work(other_call(1)), lambda: Fit(5), no_rehearsal)


@pytest.fixture
def whole(meetings) -> RenewableRing:
    """A ring of all three workers. This worker is the last one, and is new."""
    meetings.place = (2, 3)
    ring = RenewableRing(meetings.connect, most=3)
    process_ring.use(ring)
    new_to(ring, 2)
    return ring


@pytest.mark.usefixtures("whole")
def test_a_newcomer_that_nobody_else_has_blamed_may_be_right(of_three_survivor):
    """The two others may differ from each other. If not, its next try shows that."""
    with pytest.raises(PeerLostError, match="this new worker or another one does not"):
        done_by(of_three_survivor, Work(other_call(1)), lambda: Fit(5), no_rehearsal)


@pytest.mark.usefixtures("whole")
def test_one_that_another_has_seen_is_wrong(of_three_survivor):
    with pytest.raises(ConfigurationError, match="at predict"):
        done_by(of_three_survivor, Work(other_call(2, seen_by=0)), lambda: Fit(5), no_rehearsal)


def test_other_calls_in_a_ring_with_survivors_are_worth_new_processes(meetings, recovery):
    """State of an earlier ring may be the cause, as in a callback that remembers it."""
    looks = SimpleNamespace(look=lambda _: frozenset(), began_together=False)
    process_ring.use(RenewableRing(meetings.connect, looks=looks))
    with pytest.raises(PeerLostError, match="did not begin together"):
        done_by(recovery, Work(other_call(1)), lambda: Fit(5), no_rehearsal)


def test_other_calls_of_those_who_are_not_new_are_the_programs_fault(of_three, of_three_survivor):
    new_to(of_three, 2)
    with pytest.raises(OtherCall):
        done_by(of_three_survivor, Work(other_call(1)), lambda: Fit(5), no_rehearsal)


@pytest.mark.parametrize("error", [ValueError("the script's"), PeerLostError("gave up")])
def test_whatever_ends_a_script_does_not_wait_for_a_ring(error: Exception) -> None:
    """It may end before its first fit, when a ring would need the others."""

    def form() -> RenewableRing:
        raise AssertionError("the others were met")

    process_ring.use(None)
    process_ring.offer(form)
    assert explained(error) is error

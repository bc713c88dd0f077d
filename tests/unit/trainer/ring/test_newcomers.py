"""The others of a ring continue without a newcomer that does not fit."""

import time
from collections.abc import Iterator

import pytest

from cluster_trainer.collectives.newcomers import Newcomers
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import OtherCall, PeerUnfit
from cluster_trainer.collectives.ring.ring import Ring
from harness.rings import on_all, outcomes, rings

DATA = "the number of its batches"
Rings = list[RenewableRing]


def met(made: list[Ring], looks: list[Newcomers], most: int | None = 3) -> Rings:
    """Return rings whose workers have just met."""

    def meet(ring: Ring) -> RenewableRing:
        return RenewableRing(lambda: ring, most, looks=looks[ring.rank])

    return on_all(made, meet)


@pytest.fixture
def of_known() -> list[Newcomers]:
    """The knowledge of three workers that were in a ring together."""
    looks = [Newcomers() for _ in range(3)]
    with rings(3) as made:
        assert [one.newcomers for one in met(made, looks)] == [frozenset()] * 3
    return looks


@pytest.fixture
def with_newcomer(of_known: list[Newcomers]) -> Iterator[Rings]:
    """A ring in which worker 2 was replaced."""
    of_known[2] = Newcomers()
    with rings(3) as made:
        yield met(made, of_known)


def asked(given: Rings, *answers: object) -> list[object]:
    """Return the outcome of `leave_out` on each worker, for the answers of all workers."""
    return outcomes(given, lambda ring: ring.leave_out(answers, DATA))  # type: ignore[arg-type]


def test_who_takes_a_lost_ones_place_is_new_to_the_others(with_newcomer: Rings) -> None:
    assert [one.newcomers for one in with_newcomer] == [frozenset({2})] * 3
    assert [one.operations for one in with_newcomer] == [0] * 3  # none of the program's


def test_new_processes_alone_have_begun_together(of_known: list[Newcomers]) -> None:
    with rings(3) as made:
        new = met(made, [Newcomers() for _ in range(3)])
        assert [one.began_together for one in new] == [True] * 3
    of_known[1:] = [Newcomers() for _ in range(2)]
    for _ in range(2):  # also once all are known to each other
        with rings(3) as made:
            survived = met(made, of_known)
            assert [one.began_together for one in survived] == [False] * 3
            for ring in survived:
                ring.trust_newcomers()


def test_where_all_are_needed_nobody_is_left_out(of_known: list[Newcomers]) -> None:
    of_known[2] = Newcomers()
    with rings(3) as made:
        survived = met(made, of_known, None)
        assert [one.newcomers for one in survived] == [frozenset()] * 3
        assert asked(survived, 10, 10, 9) == [False] * 3
        assert [one.began_together for one in survived] == [False] * 3


@pytest.mark.parametrize("holder", [None, 0, 1])
def test_a_newcomer_that_sees_the_difference_first_is_named_all_the_same(
    with_newcomer: Rings, holder: int | None
) -> None:
    """It comes last. The others are in another call already, which may be a broadcast."""

    def call(ring: RenewableRing) -> None:
        if ring.rank == 2:
            time.sleep(0.2)
            ring.all_gather(b"x", what="predict")
        if holder is not None:
            ring.broadcast(b"x" if ring.rank == holder else None, holder, what="fit")
        ring.all_gather(b"x", what="fit")

    for error in outcomes(with_newcomer, call):  # type: ignore[arg-type]
        assert isinstance(error, OtherCall)
        assert error.rank == 2


@pytest.mark.parametrize("wrong", [0, 1])
def test_one_that_is_not_new_is_named_where_the_newcomer_does_as_another(
    with_newcomer: Rings, wrong: int
) -> None:
    def call(ring: RenewableRing) -> None:
        if ring.rank != wrong:
            ring.all_gather(b"x", what="fit")
        time.sleep(0.2)
        ring.all_gather(b"x", what="predict")

    for error in outcomes(with_newcomer, call):  # type: ignore[arg-type]
        assert isinstance(error, OtherCall)
        seen_by = error.record.origin if error.record else None
        assert error.rank != 2
        assert seen_by != 2


def test_a_newcomer_does_not_wait_for_ever_for_the_others_word(
    with_newcomer: Rings,
) -> None:
    with_newcomer[2]._ring.doubt(0.2)  # noqa: SLF001

    def call(ring: RenewableRing) -> None:
        if ring.rank:
            ring.all_gather(b"x", what="fit" if ring.rank == 1 else "predict")
        time.sleep(0.5)
        ring.barrier()

    assert {type(one) for one in outcomes(with_newcomer, call)} == {OtherCall}  # type: ignore[arg-type]


def test_the_others_go_on_without_one_that_does_not_fit(with_newcomer: Rings) -> None:
    first, second, new = asked(with_newcomer, 10, 10, 9)
    for fit in (first, second):
        assert isinstance(fit, PeerUnfit)
        assert fit.rank == 2
        assert DATA in str(fit)
    assert new is True


def test_where_those_differ_who_are_not_new_nobody_is_left_out(with_newcomer: Rings) -> None:
    assert asked(with_newcomer, 10, 9, 9) == [False] * 3


def test_who_has_proved_to_fit_is_new_no_more(
    with_newcomer: Rings, of_known: list[Newcomers]
) -> None:
    for ring in with_newcomer:
        ring.trust_newcomers()
    assert [one.newcomers for one in with_newcomer] == [frozenset()] * 3
    assert asked(with_newcomer, 10, 10, 9) == [False] * 3
    with rings(3) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset()] * 3


def test_who_has_not_proved_it_is_as_new_in_the_next_ring(
    with_newcomer: Rings, of_known: list[Newcomers]
) -> None:
    del with_newcomer
    with rings(3) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset({2})] * 3


def test_who_missed_that_the_others_trust_a_newcomer_is_not_new_for_that(
    of_known: list[Newcomers],
) -> None:
    """It noticed a loss within a call. The others noticed the loss after that call."""
    of_known[2] = Newcomers()
    with rings(3, generation=2) as made:
        found = met(made, of_known)
        for place in (0, 2):
            found[place].trust_newcomers()
    with rings(3, generation=3) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset()] * 3
    of_known[2] = Newcomers()
    with rings(3, generation=4) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset({2})] * 3


def test_nor_where_the_newcomer_alone_trusts_itself(of_known: list[Newcomers]) -> None:
    of_known[2] = Newcomers()
    with rings(3, generation=2) as made:
        met(made, of_known)[2].trust_newcomers()
    with rings(3, generation=3) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset()] * 3


def test_who_has_missed_two_rings_is_new(of_known: list[Newcomers]) -> None:
    for generation in (2, 3):
        with rings(2, generation=generation) as made:
            assert [one.newcomers for one in met(made, of_known)] == [frozenset()] * 2
    with rings(3, generation=4) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset({2})] * 3


def test_a_new_process_is_new_however_few_rings_there_were(of_known: list[Newcomers]) -> None:
    of_known[1] = Newcomers()
    with rings(3, generation=2) as made:
        assert [one.newcomers for one in met(made, of_known)] == [frozenset({1})] * 3


def test_where_nobody_was_in_a_ring_nobody_is_new() -> None:
    with rings(3) as made:
        assert asked(met(made, [Newcomers() for _ in range(3)]), 10, 10, 9) == [False] * 3


def test_a_ring_that_fails_at_once_fails_whoever_uses_it_and_not_who_looks() -> None:
    with rings(2) as made:
        made[1].abort("a test")
        assert Newcomers().look(made[0]) == frozenset()
        assert made[0].error

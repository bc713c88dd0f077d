"""The next state of a meeting."""

from __future__ import annotations

import pytest

from entrypoint.rendezvous.states import (
    ChiefState,
    Disagreement,
    Gathered,
    MemberState,
    chief_state,
    member_state,
)

NONE, NEWCOMERS, WORKERS, SUCCESSOR = Disagreement
TOO_FEW, ENOUGH, CONFIRMED = Gathered


@pytest.mark.parametrize(
    ("disagreement", "gathered", "asks", "is_over", "state"),
    [
        (NONE, TOO_FEW, False, False, ChiefState.GATHERS),
        (NONE, TOO_FEW, True, False, ChiefState.GATHERS),
        (NONE, ENOUGH, True, False, ChiefState.CONFIRMS),
        (NONE, CONFIRMED, False, False, ChiefState.RELEASES),
        (NONE, CONFIRMED, True, False, ChiefState.LINKS),
        (NONE, CONFIRMED, True, True, ChiefState.GAVE_UP),
        (NEWCOMERS, TOO_FEW, False, True, ChiefState.SENDS_AWAY),
        (WORKERS, CONFIRMED, True, False, ChiefState.CONTRADICTED),
        (SUCCESSOR, CONFIRMED, True, True, ChiefState.REPLACED),
    ],
)
def test_state_of_worker_0(disagreement, gathered, asks, is_over, state) -> None:
    assert chief_state(disagreement, gathered, asks=asks, is_over=is_over) is state


@pytest.mark.parametrize(
    ("before", "disagreement", "is_over", "after"),
    [
        (MemberState.DIALS, NONE, False, MemberState.DIALS),
        (MemberState.CHECKED_IN, NONE, False, MemberState.CHECKED_IN),
        (MemberState.CHECKED_IN, NONE, True, MemberState.GAVE_UP),
        (MemberState.PROMISED, WORKERS, True, MemberState.PROMISED),
        (MemberState.LINKED, NONE, True, MemberState.LINKED),
        (MemberState.PROMISED, NEWCOMERS, False, MemberState.SENDS_AWAY),
        (MemberState.DIALS, WORKERS, True, MemberState.CONTRADICTED),
        (MemberState.WENT, NEWCOMERS, True, MemberState.WENT),
    ],
)
def test_state_of_another_worker(before, disagreement, is_over, after) -> None:
    assert member_state(before, disagreement, is_over=is_over) is after


@pytest.mark.parametrize("state", [*ChiefState, *MemberState, *Disagreement, *Gathered])
def test_every_state_has_a_sentence_of_its_own(state) -> None:
    assert state.value.endswith(".")

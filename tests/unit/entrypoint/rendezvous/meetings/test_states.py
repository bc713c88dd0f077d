"""Which state of a meeting comes next."""

from __future__ import annotations

import pytest

from entrypoint.rendezvous.states import (
    ChiefState,
    MemberState,
    SeenByChief,
    SeenByMember,
    chief_state,
    member_state,
)

ENOUGH = {"are_enough": True, "are_confirmed": True}


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ({}, ChiefState.GATHERS),
        ({"asks": True}, ChiefState.GATHERS),
        ({"are_enough": True}, ChiefState.CONFIRMS),
        (ENOUGH, ChiefState.RELEASES),
        ({**ENOUGH, "asks": True}, ChiefState.LINKS),
        ({"is_late": True}, ChiefState.GAVE_UP),
        ({"are_enough": True, "is_late": True}, ChiefState.CONFIRMS),  # it is never too late to go
        ({**ENOUGH, "is_vain": True}, ChiefState.GAVE_UP),
        ({**ENOUGH, "contradicts": True}, ChiefState.CONTRADICTED),
        ({"contradicts": True, "is_about_newcomers": True}, ChiefState.SENDS_AWAY),
        ({**ENOUGH, "contradicts": True, "is_replaced": True}, ChiefState.REPLACED),
    ],
)
def test_state_of_worker_0(seen: dict[str, bool], state: ChiefState) -> None:
    assert chief_state(SeenByChief(**seen)) is state


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ({}, MemberState.DIALS),
        ({"is_connected": True}, MemberState.CHECKED_IN),
        ({"has_promised": True, "contradicts": True}, MemberState.PROMISED),
        ({"is_linking": True, "is_late": True}, MemberState.LINKED),
        ({"contradicts": True, "is_late": True}, MemberState.CONTRADICTED),
        ({"contradicts": True, "is_about_newcomers": True}, MemberState.SENDS_AWAY),
        ({"is_connected": True, "is_late": True}, MemberState.GAVE_UP),
        ({"has_gone": True, "is_late": True, "contradicts": True}, MemberState.WENT),
    ],
)
def test_state_of_another_worker(seen: dict[str, bool], state: MemberState) -> None:
    assert member_state(SeenByMember(**seen)) is state


@pytest.mark.parametrize("state", [*ChiefState, *MemberState])
def test_every_state_has_a_sentence_of_its_own(state: ChiefState | MemberState) -> None:
    assert state.value.endswith(".")

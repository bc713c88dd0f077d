"""Whether contradictions concern workers of one kind only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from entrypoint.errors import Problem
from entrypoint.rendezvous.comparison import Contradictions, Difference

NEW, OLD = (
    SimpleNamespace(boot="new", task="worker-1", generation=0),
    SimpleNamespace(boot="old", task="worker-2", generation=9),
)
SAID = [Problem("host list of worker-2", "3 entries", "2 entries")]


@pytest.mark.parametrize(
    ("accused", "tellers", "are_all"),
    [
        ([], [], False),
        ([NEW], [], True),
        ([NEW, OLD], [], False),
        ([], [NEW], True),  # told by a newcomer
        ([], [OLD], False),
        ([], [None], False),  # told by a worker that has left
        ([NEW], [NEW], True),
        ([NEW], [OLD], False),
    ],
)
def test_what_new_ones_say_counts_as_little_as_what_is_wrong_with_them(accused, tellers, are_all):
    found = Contradictions()
    for card in accused:
        found.add(card, "a:1", Difference("image version", "2", "1"))
    for teller in tellers:
        found.take(SAID, teller)
    assert found.are_all_of(lambda card: card.generation < 9) == are_all

"""How often somebody may be lost between the gate and the ring."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from entrypoint import start


@pytest.mark.parametrize(
    ("max_restarts", "min_workers", "losses"),
    [
        (3, None, 6),
        (3, 2, 6),
        (0, None, 1),
        (0, 3, 1),  # that is all of them
        (0, 2, 2),  # one that its neighbour cannot reach is left out after two
    ],
)
def test_the_losses_are_as_many_as_restarts_and_enough_to_leave_one_out(
    max_restarts, min_workers, losses
):
    options = SimpleNamespace(
        rendezvous_timeout_seconds=300,
        startup_timeout_seconds=300,
        regroup_seconds=5.0,
        max_restarts=max_restarts,
        min_workers=min_workers,
    )
    gate = start._gate_again(options, 3, None, None)  # noqa: SLF001 -- else it takes a container
    assert gate.most_losses == losses

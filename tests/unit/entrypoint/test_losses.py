"""The number of losses that are allowed between the gate and the ring."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec
from entrypoint.peers import PeersOfStart


@pytest.mark.parametrize(
    ("max_restarts", "min_workers", "losses"),
    [
        (3, None, 6),
        (3, 2, 6),
        (0, None, 1),
        (0, 3, 1),  # all three are needed
        (0, 2, 2),  # a worker that its neighbour cannot reach is left out after two
    ],
)
def test_the_losses_are_as_many_as_restarts_and_enough_to_leave_one_out(
    max_restarts, min_workers, losses
):
    spec = ClusterSpec.of_workers(Address(host, 1) for host in "abc")
    peers = PeersOfStart(
        spec=spec,
        task=spec.chief.task,
        request=None,
        environment={},
        options=SimpleNamespace(
            max_restarts=max_restarts, min_workers=min_workers, regroup_seconds=5.0
        ),
        settings={},
        log=None,
        board=None,
    )
    assert peers.most_losses == losses

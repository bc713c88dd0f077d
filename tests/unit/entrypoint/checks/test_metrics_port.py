"""METRICS_PORT has to be free, and no worker's."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from entrypoint.checks.metrics_port import check_metrics_port
from entrypoint.errors import ConfigurationError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_free_is_taken_and_none_is_needed(taken: int) -> None:
    with socket.create_server(("", 0)) as server:
        free = server.getsockname()[1]
    check_metrics_port(free, [2222])
    check_metrics_port(None, [taken])


def test_a_port_that_somebody_listens_on_is_refused(taken: int) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_metrics_port(taken, [2222])
    assert "a port that is free here. Address already in use." in str(refused.value)


def test_a_workers_port_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_metrics_port(2223, [2222, 2223])
    expected = 'METRICS_PORT: received "2223"; accepted: another port than the workers\' own.'
    assert expected in str(refused.value)

"""METRICS_PORT must be free, and must not be a worker's port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from entrypoint.checks.options import check_metrics_port
from entrypoint.errors import ConfigurationError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another server listens on."""
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


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 on this machine")
def test_a_port_that_somebody_listens_on_with_ipv6_alone_is_refused() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6) as server,
        pytest.raises(ConfigurationError),
    ):
        check_metrics_port(server.getsockname()[1], [2222])


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_a_machine_without_ipv6_needs_none(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    create, families = socket.create_server, []

    def without_ipv6(
        address: tuple[str, int], *, family: int = socket.AF_INET, **options: object
    ) -> socket.socket:
        families.append(family)
        if family == socket.AF_INET6:
            raise OSError(number, "switched off")
        return create(address, family=family, **options)

    with create(("", 0)) as server:
        free = server.getsockname()[1]
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    monkeypatch.setattr(socket, "create_server", without_ipv6)
    check_metrics_port(free, [2222])
    assert families == [socket.AF_INET6, socket.AF_INET]


def test_a_workers_port_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_metrics_port(2223, [2222, 2223])
    expected = 'METRICS_PORT: received "2223"; accepted: a port that no worker uses'
    assert expected in str(refused.value)

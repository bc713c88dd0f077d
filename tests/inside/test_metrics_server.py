"""The server that answers Prometheus: on IPv4 and on IPv6, where the machine has both."""

import errno
import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from cluster_trainer import metrics_server

TOLD = {"worker": "worker-1", "step": 7, "state": "training"}


@pytest.fixture
def server(monkeypatch):
    """Start it; return its port. What `status` says is TOLD."""
    monkeypatch.setattr(metrics_server, "ask", lambda: [TOLD])
    registry = CollectorRegistry()
    registry.register(metrics_server.Workers())
    opened = []

    def start():
        listener = metrics_server.listen(0)
        opened.append(metrics_server.start(listener, registry))
        return listener.getsockname()[1]

    yield start
    for one in opened:
        one.shutdown()
        one.server_close()


def has_ipv6():
    """Whether this container has an IPv6 address of its own: the engine may leave it none."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def scrape(host, port):
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=20) as answer:
        return answer.read().decode().splitlines()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        pytest.param("[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_both_families_are_answered(server, host):
    assert 'cluster_trainer_step{worker="worker-1"} 7.0' in scrape(host, server())


def test_a_machine_whose_ipv6_is_switched_off_is_answered_on_ipv4(server, monkeypatch):
    create = socket.create_server

    def without_ipv6(address, *, family=socket.AF_INET, dualstack_ipv6=False):
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "switched off")
        return create(address, family=family, dualstack_ipv6=dualstack_ipv6)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    monkeypatch.setattr(socket, "create_server", without_ipv6)
    assert scrape("127.0.0.1", server())


def test_a_port_that_is_taken_is_no_reason_to_listen_elsewhere():
    with (
        metrics_server.listen(0) as taken,
        pytest.raises(OSError, match="already in use"),
    ):
        metrics_server.listen(taken.getsockname()[1])

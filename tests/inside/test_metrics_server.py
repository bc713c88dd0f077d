"""The answers of the server for Prometheus, on IPv4 and on IPv6."""

import errno
import json
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cluster_trainer import metrics_server
from entrypoint.status.board import Board

TOLD = {"worker": "worker-1", "step": 7, "state": "training"}


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    registry.register(metrics_server.WorkersMetrics())
    return registry


@pytest.fixture
def server(monkeypatch, registry):
    """Return a function that starts the server and returns its port; `status` says TOLD."""
    monkeypatch.setattr(metrics_server, "ask", lambda: [TOLD])
    opened = []

    def start():
        listener = metrics_server.listen(0)
        opened.append(metrics_server.start(listener, registry))
        return listener.getsockname()[1]

    yield start
    for one in opened:
        one.shutdown()
        one.server_close()


@pytest.fixture
def board(tmp_path, monkeypatch):
    """The board on which an entrypoint notes its worker's state, where `status` finds it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Board.put_up("worker-5", [tmp_path])


def test_what_a_worker_has_noted_is_told(board, registry):
    board.note_wait(2.5)
    board.note_wait(1.0)
    board.note_start("running", 3)
    told = {"checkpoint_step": 40, "checkpoint_at": time.monotonic() - 30, "slow": "throttled"}
    Path(board.variables["STATUS_FILE"]).write_text(json.dumps(told))

    def value(name):
        return registry.get_sample_value(f"cluster_trainer_{name}", {"worker": "worker-5"})

    names = ["gate_waits_total", "gate_wait_seconds_total", "restarts_total"]
    assert [value(name) for name in names] == [2, 3.5, 3]
    assert [value("checkpoint_step"), value("slow"), value("healthy")] == [40, 1, 1]
    assert 30 <= value("checkpoint_age_seconds") < 60


def has_ipv6():
    """Whether this container has an IPv6 address; the engine may give it none."""
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

"""The answers of the server for Prometheus, on IPv4 and on IPv6."""

import errno
import json
import socket
import struct
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

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


def answer_to(text, port):
    """Return the first line of the answer to a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"{text} HTTP/1.0\r\n\r\n".encode())
        return connection.makefile().readline().strip()


@pytest.mark.parametrize(
    ("path", "code"),
    [("/metrics", 200), ("/metrics?x=1", 200), ("/", 404), ("/other", 404), ("http://[", 404)],
)
def test_other_paths_are_not_found(server, path, code):
    assert answer_to(f"GET {path}", server()).split()[1] == str(code)


def test_many_scrapes_within_a_second_ask_once(monkeypatch, registry):
    asked = []
    monkeypatch.setattr(metrics_server, "RECENT_SECONDS", 60)
    monkeypatch.setattr(metrics_server, "ask", lambda: asked.append(time.sleep(0.2)) or [TOLD])
    with ThreadPoolExecutor(5) as pool:
        read = [pool.submit(generate_latest, registry) for _ in range(5)]
        assert all(b"cluster_trainer_step{" in one.result() for one in read)
    assert len(asked) == 1


def test_a_status_is_asked_for_again_after_a_second(monkeypatch, registry):
    asked = []
    monkeypatch.setattr(metrics_server, "RECENT_SECONDS", 0)
    monkeypatch.setattr(metrics_server, "ask", lambda: asked.append(0) or [TOLD])
    for _ in range(2):
        generate_latest(registry)
    assert len(asked) == 2


def test_connections_that_stay_silent_hold_few_threads_and_not_for_ever(server, monkeypatch):
    monkeypatch.setattr(metrics_server.Handler, "timeout", 1.0)
    port, before = server(), threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(30)]
    assert [one.recv(1) for one in silent[metrics_server.MOST_CONNECTIONS :]] == [b""] * 22
    assert threading.active_count() - before <= metrics_server.MOST_CONNECTIONS
    assert [one.recv(1) for one in silent] == [b""] * 30
    assert scrape("127.0.0.1", port)


def test_a_connection_that_is_reset_leaves_no_traceback(server, capfd, monkeypatch):
    ended = threading.Event()
    finish = metrics_server.Server.shutdown_request
    monkeypatch.setattr(
        metrics_server.Server, "shutdown_request", lambda *given: (finish(*given), ended.set())
    )
    with socket.create_connection(("127.0.0.1", server()), timeout=20) as connection:
        connection.sendall(b"GET /met")
        now = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)  # close() resets
    assert ended.wait(20)
    assert capfd.readouterr() == ("", "")

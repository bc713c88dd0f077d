"""`python -m cluster_trainer.metrics_server PORT`: the status as Prometheus metrics.

The entrypoint starts it if METRICS_PORT is set. It runs `status --json`, at most once a second, so
it works even when a worker hangs. Anyone who reaches the port may connect, so each limit here
protects the worker: its CPU, its threads and its log.
"""

import argparse
import errno
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PATH = "/metrics"
ANSWER_SECONDS = 10.0
RECENT_SECONDS = 1.0
"""The time for which a status is used again, however many connections ask for it."""
IDLE_SECONDS = 10.0
"""The time that a connection may take to send its next bytes, or to receive ours."""
MOST_CONNECTIONS = 8
"""The number of connections at the same time. Others are closed at once."""
PREFIX = "cluster_trainer_"
STATES = (
    "waiting",
    "starting",
    "training",
    "saving",
    "running",
    "restarting",
    "stopping",
    "done",
    "stopped",
    "failed",
)
GAUGES = {
    "step": ("step", "Training steps of the run so far."),
    "epoch": ("epoch", "The present epoch of the run, from 1."),
    "examples_per_second": (
        "examples_per_second",
        "Training examples per second, of all workers together.",
    ),
    "checkpoint_step": ("checkpoint_step", "The step of this worker's newest checkpoint."),
    "checkpoint_age_seconds": (
        "checkpoint_seconds",
        "Seconds since this worker wrote its newest checkpoint.",
    ),
    "healthy": ("healthy", "1 if `status` reports this worker as healthy."),
    "slow": ("slow", "1 while this worker is a straggler."),
}
"""Metric -> the member of status, and its meaning. Unknown values are omitted."""
COUNTERS = {
    "restarts": ("restarts", "Restarts of the command in this container."),
    "gate_waits": ("gate_waits", "Finished waits for other workers at the gate."),
    "gate_wait_seconds": ("gate_wait_seconds", "Total seconds of the finished waits at the gate."),
}


def ask() -> list[Mapping[str, Any]]:
    """Return the status of each worker here; nothing if it is not available."""
    try:
        answer = subprocess.run(
            ["status", "--json"],  # noqa: S607  the image's
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_SECONDS,
            check=False,  # 1 means that a worker is unhealthy
        )
        found = [json.loads(line) for line in answer.stdout.splitlines()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    return [one for one in found if isinstance(one, dict)]


class Recent:
    """The status of the workers here; it is asked again only after RECENT_SECONDS."""

    def __init__(self) -> None:
        self._lock, self._until = Lock(), 0.0
        self._workers: list[Mapping[str, Any]] = []

    def get(self) -> list[Mapping[str, Any]]:
        """Return the status. Threads that ask at the same time share one answer."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._workers = ask()
                self._until = time.monotonic() + RECENT_SECONDS
            return self._workers


class WorkersMetrics(Collector):
    """The metrics of this container's workers, usually one."""

    def __init__(self) -> None:
        self._recent = Recent()

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its value for each worker."""
        workers = self._recent.get()
        for name, (member, text) in GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=["worker"])
            yield _filled(gauge, workers, member)
        for name, (member, text) in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, text, labels=["worker"])
            yield _filled(counter, workers, member)
        text = "1 for the state that the worker is in."
        states = GaugeMetricFamily(f"{PREFIX}state", text, labels=["worker", "state"])
        for worker in workers:
            for state in STATES:
                states.add_metric([_name(worker), state], float(worker.get("state") == state))
        yield states


def _filled(family: Any, workers: list[Mapping[str, Any]], member: str) -> Metric:
    for worker in workers:
        value = worker.get(member)
        if isinstance(value, (int, float)):
            family.add_metric([_name(worker)], float(value))
    filled: Metric = family
    return filled


def _name(worker: Mapping[str, Any]) -> str:
    return str(worker.get("worker", ""))


def listen(port: int) -> socket.socket:
    """Return a socket that listens at all addresses, IPv4's and IPv6's if both exist.

    Raises:
        OSError: something else listens there.
    """
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:  # IPv6 is disabled
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("", port))


class Handler(MetricsHandler):
    """Answers one connection. The library's own handler takes any path, and waits for ever."""

    timeout = IDLE_SECONDS

    def do_GET(self) -> None:  # noqa: N802  the library's own name
        """Answer a scrape."""
        if self.path.partition("?")[0] == PATH:
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)


class Server(ThreadingHTTPServer):
    """Answers in a bounded number of threads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread, or close it if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # a limit of threads
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection; this is the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless the other side has ended the connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def start(listener: socket.socket, registry: CollectorRegistry) -> Server:
    """Answer in threads; the library's own server supports one address family only."""
    address = listener.getsockname()[:2]
    server = Server(address, Handler.factory(registry), bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Serve until this process is told to end."""
    parser = argparse.ArgumentParser(prog="metrics_server", description="metrics for Prometheus")
    parser.add_argument("port", type=int, help="on all of this container's addresses")
    port = parser.parse_args().port
    ending = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)  # in its threads, too
    registry = CollectorRegistry()
    registry.register(WorkersMetrics())
    start(listen(port), registry)
    signal.sigwait(ending)


if __name__ == "__main__":
    main()

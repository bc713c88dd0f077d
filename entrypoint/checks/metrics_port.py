"""Whether the port for metrics can be listened on, and is no worker's."""

from __future__ import annotations

import os
from collections.abc import Iterable

from entrypoint.errors import ConfigurationError, Problem

NAME = "METRICS_PORT"


def check_metrics_port(port: int | None, workers_ports: Iterable[int]) -> None:
    """Raise ConfigurationError if the port is a worker's, or something listens on it."""
    if port is None:
        return
    if port in workers_ports:
        problem = Problem(NAME, str(port), "another port than the workers' own")
    elif reason := _reason(port):
        problem = Problem(NAME, str(port), "a port that is free here", f"{reason}.")
    else:
        return
    raise ConfigurationError([problem])


def _reason(port: int) -> str:
    """Return why nobody may listen on a port now, an empty text if one may."""
    import socket  # noqa: PLC0415 -- slow, and most starts need none

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError as error:
            return os.strerror(error.errno or 0)
    return ""

"""Whether the port for metrics can be listened on, and is no worker's."""

from __future__ import annotations

import errno
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
    try:
        _listen(port)
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


def _listen(port: int) -> None:
    """Listen for a moment as the trainer's metrics_server.py does: IPv6 too, where there is any.

    Raises:
        OSError: it may not be.
    """
    import socket  # noqa: PLC0415 -- slow, and most starts need none

    if socket.has_dualstack_ipv6():
        try:
            socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True).close()
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
        else:
            return
    socket.create_server(("", port)).close()

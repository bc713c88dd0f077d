"""The entrypoint's own options: how long to wait, how often to try again, how to log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from entrypoint.errors import ConfigurationError, Problem, all_of
from entrypoint.settings.environ import Environ, whole_number
from entrypoint.settings.variables import CLUSTER_TOKEN, LOG_FORMAT, STOP_GRACE_SECONDS

TEXT, JSON = "text", "json"
LONGEST_SECONDS = 10_000_000
LARGEST_EXIT_CODE = 255
FEWEST_TOKEN_CHARACTERS = 8


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may choose; the names are those of `variables.py`."""

    rendezvous_timeout_seconds: int
    """0: the gate is skipped."""
    startup_timeout_seconds: int
    """0: no limit."""
    stop_grace_seconds: float
    max_restarts: int
    peer_lost_exit_code: int
    gpus_per_worker: int | None
    cluster_token: str | None
    progress_file: str | None
    failure_file: str | None
    log_format: str


def read_options(environ: Environ) -> Options:
    """Return the options; raise ConfigurationError with everything that is wrong with them."""
    rendezvous, startup, restarts, code, gpus, grace, token, log_format = all_of(
        _number(environ, "RENDEZVOUS_TIMEOUT", 0, LONGEST_SECONDS),
        _number(environ, "STARTUP_TIMEOUT", 0, LONGEST_SECONDS),
        _number(environ, "MAX_RESTARTS", 0, None),
        _number(environ, "PEER_LOST_EXIT_CODE", 1, LARGEST_EXIT_CODE),
        lambda: _gpus(environ),
        lambda: _seconds(environ, "STOP_GRACE_SECONDS"),
        lambda: _token(environ),
        lambda: read_log_format(environ),
    )
    return Options(
        rendezvous_timeout_seconds=rendezvous,
        startup_timeout_seconds=startup,
        max_restarts=restarts,
        peer_lost_exit_code=code,
        gpus_per_worker=gpus,
        stop_grace_seconds=grace,
        cluster_token=token,
        log_format=log_format,
        progress_file=environ.get("PROGRESS_FILE"),
        failure_file=environ.get("FAILURE_FILE"),
    )


def _number(environ: Environ, name: str, low: int, high: int | None) -> Callable[[], int]:
    """Return the reading of a whole number, not yet done."""
    return lambda: whole_number(environ, name, low, high)


def _gpus(environ: Environ) -> int | None:
    """Return GPUS_PER_WORKER, None if it is not given."""
    if "GPUS_PER_WORKER" not in environ.values:
        return None
    return whole_number(environ, "GPUS_PER_WORKER", 0, None)


def _seconds(environ: Environ, name: str) -> float:
    """Return a number of seconds, with or without a fraction."""
    text = (environ.get(name) or "").strip()
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,6})?", text):
        raise ConfigurationError([Problem(environ.label(name), text, STOP_GRACE_SECONDS.accepted)])
    return float(text)


def _token(environ: Environ) -> str | None:
    """Return CLUSTER_TOKEN without the newline that a file ends with."""
    token = (environ.get("CLUSTER_TOKEN") or "").strip()
    if token and len(token) < FEWEST_TOKEN_CHARACTERS:
        name = environ.label("CLUSTER_TOKEN")
        raise ConfigurationError([Problem(name, token, CLUSTER_TOKEN.accepted)])
    return token or None


def read_log_format(environ: Environ) -> str:
    """Return LOG_FORMAT; raise ConfigurationError."""
    text = (environ.get("LOG_FORMAT") or TEXT).strip().lower()
    if text not in (TEXT, JSON):
        raise ConfigurationError([Problem(environ.label("LOG_FORMAT"), text, LOG_FORMAT.accepted)])
    return text

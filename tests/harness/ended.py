"""A container that has ended: its exit code, its output, and its duration by the engine's clock."""

from dataclasses import dataclass
from datetime import datetime

import requests
from docker.models.containers import Container

from harness.waiting import WaitError, logs_of
from harness.workbench import Workbench

MAX_SECONDS = 180
"""One or two starts of TensorFlow take less, even on a busy machine."""


@dataclass(frozen=True)
class Ended:
    """The end of a container.

    Attributes:
        code: its exit code.
        out: its standard output.
        err: its standard error.
        seconds: the time from the engine's StartedAt to its FinishedAt.
    """

    code: int
    out: str
    err: str
    seconds: float


def wait_for_end(container: Container, timeout_seconds: float = MAX_SECONDS) -> Ended:
    """Wait until the container ends by itself.

    Raises:
        WaitError: it still runs after `timeout_seconds`.
    """
    try:
        code = container.wait(timeout=timeout_seconds)["StatusCode"]
    except requests.exceptions.RequestException as error:
        message = f"{container.name} still runs after {timeout_seconds} s\n{logs_of(container)}"
        raise WaitError(message) from error
    container.reload()
    return Ended(
        code=code,
        out=container.logs(stdout=True, stderr=False).decode(errors="replace"),
        err=container.logs(stdout=False, stderr=True).decode(errors="replace"),
        seconds=_seconds(container.attrs["State"]),
    )


def run_and_remove(
    bench: Workbench, *command: str, timeout_seconds: float = MAX_SECONDS, **options: object
) -> Ended:
    """Run a container of the image until it ends, and remove it; see `wait_for_end`."""
    container = bench.start(*command, **options)
    try:
        return wait_for_end(container, timeout_seconds)
    finally:
        container.remove(force=True, v=True)


def _seconds(state: dict[str, str]) -> float:
    started, finished = (_moment(state[name]) for name in ("StartedAt", "FinishedAt"))
    return (finished - started).total_seconds()


def _moment(text: str) -> datetime:
    # The engine prints nanoseconds, which datetime cannot read: 2026-01-02T03:04:05.123456789Z
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00")

"""Waits for conditions. Each wait has a time limit, and fails with the logs."""

import time
from collections.abc import Callable
from contextlib import suppress

from docker.errors import APIError
from docker.models.containers import Container

INTERVAL_SECONDS = 0.05
PAUSE_SECONDS = 30


class WaitError(AssertionError):
    """A condition was not true in time; the message contains the logs."""


def wait_until(
    condition: Callable[[], object], timeout_seconds: float, what: str, logs: Callable[[], str]
) -> float:
    """Wait until `condition` is true; return the duration of the wait, in seconds.

    Raises:
        WaitError: it was not true in time.
    """
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout_seconds:
            message = f"not within {timeout_seconds:g} s: {what}\n{logs()}"
            raise WaitError(message)
        time.sleep(INTERVAL_SECONDS)
    return time.monotonic() - begin


def wait_inside(  # noqa: PLR0913 -- the last one has a default
    container: Container,
    condition: str,
    timeout_seconds: float,
    what: str,
    logs: Callable[[], str],
    *,
    user: str = "",
) -> None:
    """Wait until a shell condition is true; a loop in the container checks it.

    Raises:
        WaitError: it was not true in time.
    """
    loop = f"until {condition}; do sleep 0.3; done"
    command = ["timeout", f"{timeout_seconds}", "bash", "-c", loop]
    code, _ = container.exec_run(command, user=user)
    if code:
        message = f"not within {timeout_seconds:g} s: {what}\n{logs()}"
        raise WaitError(message)


def wait_for_text(container: Container, text: str, timeout_seconds: float = 60) -> float:
    """Wait until the container has printed `text`; see `wait_until`.

    Raises:
        WaitError: it was not printed in time, or the container ended without it.
    """

    def printed() -> bool:
        # The state is read before the logs, so that the last line of an ended container counts.
        container.reload()
        ended = container.status == "exited"
        if text in logs_of(container):
            return True
        if ended:
            message = f"{container.name} ended without {text!r}\n{logs_of(container)}"
            raise WaitError(message)
        return False

    what = f"{container.name} prints {text!r}"
    return wait_until(printed, timeout_seconds, what, lambda: logs_of(container))


def pause(container: Container) -> None:
    """Freeze all processes of a container, as `docker pause` does.

    On a busy machine with cgroup v1, the engine sometimes gives up ("unable to freeze") and thaws
    the processes. Then this function tries again.

    Raises:
        WaitError: it was not frozen in time.
    """

    def paused() -> bool:
        with suppress(APIError):
            container.pause()
        container.reload()
        return container.status == "paused"

    what = f"{container.name} is paused"
    wait_until(paused, PAUSE_SECONDS, what, lambda: logs_of(container))


def logs_of(container: Container) -> str:
    """Return the container's output so far: both streams, in order."""
    return container.logs().decode(errors="replace")

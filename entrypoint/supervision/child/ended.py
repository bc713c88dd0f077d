"""How a command or a helper process ended: its exit code, in words, and whether to try again."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from entrypoint.errors import FINAL_CODES, SIGNAL_CODES, STOP_CODES, how_it_ended, signal_name


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int
    """Its own exit code, or 128 + n if signal n ended it, or was sent to stop it."""
    reason: str
    stopped: bool = False
    """Whether a stop was requested, also if the child then ended with 0."""
    found: str = ""
    """The result of a helper process that ended with 0."""
    leaves_nothing: bool = False
    """Whether nothing is left to do, so that the command is not even started."""

    @property
    def may_be_retried(self) -> bool:
        """Whether a retry may help: after a crash or a lost peer."""
        return not self.stopped and self.code not in (0, *FINAL_CODES)


def stopped_by(number: int, how: str) -> Ended:
    """Return the end of a process that a signal has stopped; `how` gives details in parentheses."""
    reason = f"stopped by {signal_name(number)} ({how})"
    return Ended(SIGNAL_CODES + number, reason, stopped=True)


def ended_by_itself(status: int, name: str, ran_out: str | None, *, stopped: bool) -> Ended:
    """Return the end of a process that this one did not kill.

    Args:
        status: its exit code, or -n if signal n ended it.
        name: what it is called in messages.
        ran_out: the memory limit for which the kernel has killed a process here, in words; "": it
            has killed none; None: there is no counter.
        stopped: whether a stop was requested.
    """
    code = status if status >= 0 else SIGNAL_CODES - status
    reason = f"{name} {how_it_ended(status)}{_why(status, ran_out)}"
    return Ended(code, reason, stopped=stopped or code in STOP_CODES)


def _why(status: int, ran_out: str | None) -> str:
    """Return the cause if the kernel has killed a process for lack of memory.

    A shell reports a killed child as code 137. Other programs use other codes.
    """
    if ran_out is None:
        return ": out of memory?" if status == -signal.SIGKILL else ""
    if status == 0 or not ran_out:
        return ""
    if status in (-signal.SIGKILL, SIGNAL_CODES + signal.SIGKILL):
        return f": {ran_out}"
    return f", after a process here was killed: {ran_out}"

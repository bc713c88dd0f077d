"""Reports once, on the chief, that steps wait for data because each worker prepares all rows."""

import logging
from collections.abc import Callable

WINDOW_SECONDS = 30.0
LIMIT = 1 / 3
"""The share of the training time above which waiting for data is worth a message."""
_told: set[str] = set()
log = logging.getLogger("trainer")


class InputWatch:
    """Watches how long the chief's steps wait for their batches, in windows of WINDOW_SECONDS.

    Args:
        waited: returns how long the steps have waited for batches, in seconds; None: that is not
            measured, as on GPUs and on several devices.
        advice: returns why the worker cannot prepare its share only; "" if it can.
        is_chief: whether this worker reports it.
    """

    def __init__(
        self,
        waited: Callable[[], float | None],
        advice: Callable[[], str],
        *,
        is_chief: bool,
    ) -> None:
        self._waited, self._advice, self._is_over = waited, advice, not is_chief
        self._before: float | None = None
        self._seconds = 0.0

    def note(self, seconds: float) -> None:
        """Note how long the calls since the last note took; the first compiles, and is ignored."""
        if self._is_over:
            return
        now = self._waited()
        if now is None:
            self._is_over = True
            _say(logging.INFO, self._advice())
        elif self._before is None:
            self._before = now
        else:
            self._seconds += seconds
            if self._seconds >= WINDOW_SECONDS:
                self._judge(now - self._before)
                self._before, self._seconds = now, 0.0

    def _judge(self, waited: float) -> None:
        share = waited / self._seconds
        if share > LIMIT:
            self._is_over = True
            wait = f"steps wait for data {min(share, 1):.0%} of the time: "
            _say(logging.WARNING, self._advice(), wait)


def _say(level: int, advice: str, wait: str = "") -> None:
    if advice and advice not in _told:
        _told.add(advice)
        text = "%severy worker prepares all rows of the tf.data pipeline: %s (docs/how-to/slow.md)"
        log.log(level, text, wait, advice)

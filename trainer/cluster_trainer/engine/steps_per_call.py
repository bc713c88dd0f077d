"""Chooses how many steps run in one call into TensorFlow.

Calls with many steps are fast. Short calls keep the user informed, and can stop soon. Every worker
must divide a run into the same calls, so all workers use the slowest worker's time.
"""

from collections.abc import Callable

TARGET_SECONDS = 1.0
SHORT_SECONDS = 0.2
"""Used when a worker may be waiting for the end of a call."""
GROWTH = 4


def next_steps(steps: int, seconds: float, target: float = TARGET_SECONDS) -> int:
    """Return how many steps the next call should have, after `steps` took `seconds`."""
    fitting = int(steps * target / max(seconds, 1e-6))
    return max(1, min(fitting, steps * GROWTH))


class StepsPerCall:
    """Chooses the length of each call.

    Args:
        fixed: the number of steps in a call; None: as many as fit into `target`.
        agree: a function from this worker's seconds to the slowest worker's; all workers call it
            after the same call.
        target: the duration of a call in seconds; with `fixed`, the time between calls of `agree`.
    """

    def __init__(
        self,
        fixed: int | None,
        agree: Callable[[float], float],
        target: float = TARGET_SECONDS,
    ) -> None:
        self._fixed, self._agree, self._target = fixed, agree, target
        self._steps = fixed or 1
        self._begin(1)

    def next(self, limit: int | None) -> int:
        """Return how many steps the next call has, at most `limit`; None: there is no limit."""
        return self._steps if limit is None else min(self._steps, limit)

    def after_call(self, steps: int, seconds: float, *, is_first: bool = False) -> None:
        """Note the duration of a call, and exchange it with the other workers if that is due.

        The exchange is due after each call. Calls with a fixed number of steps may be too short for
        that, so the workers exchange the total time of several such calls.

        A call that `is_first` may have waited for its first batch. It does not shorten later calls.
        """
        self._calls_left -= 1
        self._seconds += seconds
        if self._calls_left:
            return
        calls = self._calls
        slowest = self._agree(self._seconds)
        if self._fixed:
            self._begin(next_steps(calls, slowest, self._target))
            return
        # A call that the end of an epoch has cut short does not count against longer ones. A call
        # of whole rounds may be longer than planned.
        if steps >= self._steps or slowest > self._target:
            fitting = next_steps(steps, slowest, self._target)
            self._steps = max(self._steps, fitting) if is_first else fitting
        self._begin(1)

    def _begin(self, calls: int) -> None:
        self._calls = self._calls_left = calls
        self._seconds = 0.0

"""How many steps run in one call of TensorFlow.

Many steps a call are fast; few keep a person informed and a stop prompt. Every worker must cut a
run into the same calls, so the time that decides is the slowest worker's, told to all.
"""

from collections.abc import Callable

TARGET_SECONDS = 1.0
SHORT_SECONDS = 0.2
"""Where somebody may be waiting for the end of a call."""
GROWTH = 4


def next_steps(steps: int, seconds: float, target: float = TARGET_SECONDS) -> int:
    """Return how many steps the next call should take, after `steps` took `seconds`."""
    fitting = int(steps * target / max(seconds, 1e-6))
    return max(1, min(fitting, steps * GROWTH))


class Pace:
    """Chooses the length of each call.

    Args:
        fixed: the number of steps in a call; None: calls of about the target's length.
        agree: from this worker's seconds to the slowest worker's; all workers call it after the
            same call.
        target: the seconds of a call, or between two at which it is called.
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

    def steps(self, limit: int | None) -> int:
        """Return how many steps the next call takes; more than `limit` are not left, if any is."""
        return self._steps if limit is None else min(self._steps, limit)

    def synchronise_after_call(self, steps: int, seconds: float, *, is_first: bool = False) -> None:
        """Note how long a call took; tell the other workers where that is due.

        It is due after each call, but for calls of a fixed length: these may be short, and the
        workers exchange the time of several together.

        A call that is the first of a pass may have waited for its batch: that does not shorten the
        calls that follow.
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
        # A call cut short by the end of an epoch says nothing against a longer one.
        if steps == self._steps or slowest > self._target:
            fitting = next_steps(steps, slowest, self._target)
            self._steps = max(self._steps, fitting) if is_first else fitting
        self._begin(1)

    def _begin(self, calls: int) -> None:
        self._calls = self._calls_left = calls
        self._seconds = 0.0

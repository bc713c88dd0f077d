"""How many steps run in one call of TensorFlow, and what all workers agree on in between.

Many steps a call are fast; few keep a person informed and a stop prompt. Every worker must cut
the run into the same calls, so the time that decides is the slowest worker's, told to all.
"""

import time
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf

from trainer.loop import Loop
from trainer.problems import PeerLostError, StopRequestedError
from trainer.stop import StopRequest

TARGET_SECONDS = 1.0
GROWTH = 4


def next_steps(steps: int, seconds: float) -> int:
    """Return how many steps the next call should take, after `steps` took `seconds`."""
    fitting = int(steps * TARGET_SECONDS / max(seconds, 1e-6))
    return max(1, min(fitting, steps * GROWTH))


class Pace:
    """Runs steps in calls of about a second, and looks for a stop request after each call."""

    def __init__(
        self, loop: Loop, steps_per_call: int | Literal["auto"], stop: StopRequest
    ) -> None:
        self._loop, self._stop = loop, stop
        stop.is_watched = True
        self._adapts = steps_per_call == "auto"
        self._steps = 1 if steps_per_call == "auto" else steps_per_call

    def run(
        self,
        function: Callable[[Any, tf.Tensor], tf.Tensor],
        batches: Any,
        steps: int,
        after_call: Callable[[int], None],
    ) -> None:
        """Run `steps` of `function` (Loop.train or Loop.evaluate) on `batches`.

        Args:
            function: the compiled steps.
            batches: a distributed iterator.
            steps: how many.
            after_call: called after each call with the number of steps done.

        Raises:
            StopRequestedError: this worker was asked to stop.
            PeerLostError: another worker was; all stop after the same step.
        """
        done = 0
        while done < steps:
            count = min(self._steps, steps - done)
            started = time.monotonic()
            function(batches, tf.constant(count)).numpy()
            seconds = self.agree(time.monotonic() - started)
            done += count
            # A call cut short by the end of an epoch says nothing against a longer one.
            if self._adapts and (count == self._steps or seconds > TARGET_SECONDS):
                self._steps = next_steps(count, seconds)
            after_call(done)

    def agree(self, seconds: float) -> float:
        """Meet the other workers; return the slowest one's seconds, or stop if one has to."""
        values = tf.constant([seconds, self._stop.signal_number], tf.float32)
        slowest, signal_number = self._loop.largest(values).numpy()
        if self._stop.signal_number:
            raise StopRequestedError(self._stop.signal_number)
        if signal_number:
            message = "another worker was asked to stop"
            raise PeerLostError(message)
        return float(slowest)

"""How many steps run in one call of TensorFlow, and what all workers agree on in between.

Many steps a call are fast; few keep a person informed and a stop prompt. Every worker must cut
the run into the same calls, so the time that decides is the slowest worker's, told to all; training
and evaluation have each a length of their own.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import tensorflow as tf

from cluster_trainer.engine.pace import TARGET_SECONDS, next_steps
from cluster_trainer.loop import Loop
from cluster_trainer.problems import PeerStoppedError, StopRequestedError
from cluster_trainer.stall import StallLimit
from cluster_trainer.stop import StopRequest


class Pace:
    """Runs steps in calls of about a second, and looks for a stop request after each call.

    Args:
        loop: the compiled steps.
        steps_per_call: how many of them run in a call, or `auto`.
        stop: whether this worker was asked to stop.
        stall: is told about each call, so that one that never ends is noticed.
    """

    def __init__(
        self,
        loop: Loop,
        steps_per_call: int | Literal["auto"],
        stop: StopRequest,
        stall: StallLimit,
    ) -> None:
        self._loop, self._stop, self._stall = loop, stop, stall
        stop.is_watched = True
        self._adapts = steps_per_call == "auto"
        first = 1 if steps_per_call == "auto" else steps_per_call
        # For training and evaluation apart: a step of the one may take far longer than the other's.
        self._steps: dict[Callable[..., Any], int] = defaultdict(lambda: first)
        self._some_worker_stops = False

    def run(
        self,
        function: Callable[[Any, tf.Tensor], tf.Tensor],
        batches: Any,
        steps: int,
        after_call: Callable[[int], None],
    ) -> None:
        """Run `steps` of `function` (Loop.train or Loop.evaluate) on `batches`.

        Once a worker was asked to stop, all return early, after the same step; then
        `raise_if_stopped` raises.

        Args:
            function: the compiled steps.
            batches: a distributed iterator.
            steps: how many.
            after_call: called after each call with the number of steps done.
        """
        done = 0
        while done < steps and not self._some_worker_stops:
            count = min(self._steps[function], steps - done)
            with self._stall.call(function):
                started = time.monotonic()
                function(batches, tf.constant(count)).numpy()
                seconds = self._agree(time.monotonic() - started)
            done += count
            # A call cut short by the end of an epoch says nothing against a longer one.
            if self._adapts and (count == self._steps[function] or seconds > TARGET_SECONDS):
                self._steps[function] = next_steps(count, seconds)
            after_call(done)

    def raise_if_stopped(self) -> None:
        """End the run if the workers have agreed to.

        Raises:
            StopRequestedError: this worker was asked to stop.
            PeerStoppedError: another worker was.
        """
        if self._some_worker_stops:
            if self._stop.signal_number:
                raise StopRequestedError(self._stop.signal_number)
            raise PeerStoppedError

    def meet(self) -> None:
        """Wait until all workers have come here."""
        self._agree(0.0)

    def leave(self) -> None:
        """Meet once more, after everything is done, before the process ends.

        Whoever left right after a meeting could tear it for another that is still in it. So all
        leave after a second one, whose failure only says that somebody has left.
        """
        with suppress(tf.errors.OpError):
            self.meet()

    def _agree(self, seconds: float) -> float:
        """Meet the other workers; return the slowest one's seconds, and note if one has to stop."""
        values = tf.constant([seconds, self._stop.signal_number], tf.float32)
        slowest, signal_number = self._loop.largest(values).numpy()
        self._some_worker_stops = bool(signal_number)
        return float(slowest)

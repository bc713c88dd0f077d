"""TRAINER_SYNC_EVERY=auto: chooses the length of rounds in the first seconds of the first fit.

Until then, gradients are summed in each step, and only the checkpoint of step 0 is saved. If rounds
have several steps, the fit begins again from there. So it computes the same bits as a fit whose
TRAINER_SYNC_EVERY is the chosen number. Checkpoints have that number, and a resumed fit keeps it.
"""

import logging
from collections.abc import Callable

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.fits.kept.finding import Start
from cluster_trainer.problems import ConfigurationError, Problem, RoundsChosenError
from cluster_trainer.process import round_length
from cluster_trainer.process.round_length import Measured
from cluster_trainer.settings.names.spellings import variable_of

LEAST_SECONDS = 3.0
CHOSEN = "fit (steps of a round)"
ADVICE = (
    "The first seconds measure how long sums take, and then the fit begins again from the "
    "checkpoint of step 0."
)
OF_DATA = (
    "with data that may differ when they are read again (a tf.data.Dataset, a generator, or a "
    "PyDataset that changes)"
)
log = logging.getLogger("trainer")


class RoundChoice:
    """Measures a fit's first steps, and chooses the length of rounds from them.

    Args:
        workers: all workers.
        ratio: returns the traffic of an average, divided by that of a sum of gradients.
        is_measuring: whether this fit still has to choose.
    """

    def __init__(self, workers: Workers, ratio: Callable[[], float], *, is_measuring: bool) -> None:
        self._workers, self._ratio, self.is_measuring = workers, ratio, is_measuring
        self._first: int | None = None
        self._is_told = False
        self._seconds = self._sums = 0.0

    def note(self, seconds: float, sums: float) -> None:
        """Record the durations that the workers have exchanged since the last time.

        Args:
            seconds: the duration of the calls on the slowest worker.
            sums: the time for which the worker that waited least waited for sums.
        """
        self._is_told = True
        if self._first is not None:  # the first call waits for compilation
            self._seconds += seconds
            self._sums += sums

    def after_call(self, step: int) -> None:
        """Choose once enough was measured; all workers call this after the same steps.

        Raises:
            RoundsChosenError: the fit has to begin again.
        """
        if not (self.is_measuring and self._is_told):
            return
        self._is_told = False
        if self._first is None:
            self._first = step
        elif self._seconds >= LEAST_SECONDS:
            self._choose(step - self._first)

    def end(self) -> None:
        """Record the end of the fit. If nothing was chosen, later fits sum in each step, too."""
        if not self.is_measuring:
            return
        self.is_measuring = False
        process_ring.let_rounds_have(1)
        if self._workers.rank == 0:
            log.info(
                "%s=auto: 1, because the first fit ended within the %.0f s that measure how long "
                "sums take. Set a number if this script's later fits are long",
                variable_of("sync_every"),
                LEAST_SECONDS,
            )

    def _choose(self, steps: int) -> None:
        mine = round_length.chosen(Measured(steps, self._seconds, self._sums, self._ratio()))
        every = self._workers.gather(mine.steps, CHOSEN)[0]
        self.is_measuring = False
        process_ring.let_rounds_have(every)
        if self._workers.rank == 0:
            log.info("%s", mine)
        if every > 1:
            raise RoundsChosenError(every)


def adopt(workers: Workers, start: Start) -> None:
    """Adopt an earlier choice: that of the checkpoint's run, or that of surviving workers.

    All workers call this if TRAINER_SYNC_EVERY is `auto`.
    """
    mine = 0 if process_ring.are_rounds_open() else process_ring.steps_of_round()
    every = max(workers.gather(mine, CHOSEN))
    if start.found and start.place.step:
        every = int(start.found.checkpoint.settings.get(variable_of("sync_every"), "1"))
    if every:
        process_ring.let_rounds_have(every)
    if every and not mine and workers.rank == 0:
        log.info("%s=auto: %d, as chosen before", variable_of("sync_every"), every)


def refuse_without_return(start: Start, *, begins_again: bool) -> None:
    """Refuse to measure in a fit that cannot begin again.

    Raises:
        ConfigurationError: it cannot.
    """
    if start.every and begins_again:
        return
    why = OF_DATA if start.every else "without checkpoints"
    problem = Problem(variable_of("sync_every"), f"auto, {why}", "a number, such as 16", ADVICE)
    raise ConfigurationError([problem])

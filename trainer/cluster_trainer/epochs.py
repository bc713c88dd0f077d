"""The epochs: train, keep a checkpoint, evaluate; from any step on."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

from cluster_trainer.batches import Batches
from cluster_trainer.data import order
from cluster_trainer.loop import Loop, Totals
from cluster_trainer.pace import Pace
from cluster_trainer.position import Partial, Position
from cluster_trainer.problems import TrainingDivergedError
from cluster_trainer.report import EpochMetrics, Reporter


@dataclass(frozen=True)
class Plan:
    """How the data are cut into steps and epochs.

    Attributes:
        cut: the global batch, cut into the replicas' parts.
        epochs: how many there are.
        steps_per_epoch: global batches in each.
        test_steps: global batches in an evaluation.
        checkpoint_steps: how many steps lie between two checkpoints; 0 keeps none.
    """

    cut: order.Slice
    epochs: int
    steps_per_epoch: int
    test_steps: int
    checkpoint_steps: int

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    def examples_at(self, step: int, num_examples: int) -> int:
        """Return how many examples the first `step` steps see, of a set of `num_examples`."""
        passes, in_pass = divmod(step, self.cut.steps_per_pass(num_examples))
        return passes * num_examples + in_pass * self.cut.global_batch_size

    def next_halt(self, step: int) -> int:
        """Return the next step after `step` that ends an epoch or is due for a checkpoint."""
        epoch_end = next_multiple(step, self.steps_per_epoch)
        if not self.checkpoint_steps:
            return epoch_end
        return min(epoch_end, next_multiple(step, self.checkpoint_steps))


def next_multiple(number: int, of: int) -> int:
    """Return the smallest multiple of `of` above `number`."""
    return (number // of + 1) * of


class Epochs:
    """Trains and evaluates epoch by epoch.

    Args:
        plan: how long, and how the data are cut.
        loop: the compiled steps.
        pace: how many of them run at a time.
        batches: what they run on.
        reporter: is told about progress.
    """

    def __init__(
        self, plan: Plan, loop: Loop, pace: Pace, batches: Batches, reporter: Reporter
    ) -> None:
        self._plan, self._loop, self._pace = plan, loop, pace
        self._batches, self._reporter = batches, reporter
        self._step, self._partial = 0, Partial()
        self._epochs: list[EpochMetrics] = []
        self._save: Callable[[Position], None] = lambda _: None
        self._counted = time.monotonic()

    def go_on(self, position: Position, save: Callable[[Position], None]) -> Iterator[EpochMetrics]:
        """Train and evaluate one epoch for each item, from a position on.

        Args:
            position: where to begin; the training batches begin there, too.
            save: keeps a checkpoint of a position; all workers call it after the same step.
        """
        self._step, self._partial = position.step, position.partial
        self._epochs, self._save = list(position.epochs), save
        while len(self._epochs) < self._plan.epochs:
            epoch = len(self._epochs) + 1
            self._train(epoch)
            tested = self._evaluate(epoch)
            self._epochs.append(self._metrics(epoch, tested, self._seconds_since()))
            self._partial = Partial()
            yield self._epochs[-1]

    @property
    def position(self) -> Position:
        """Where the run is now."""
        return Position(self._step, tuple(self._epochs), self._partial)

    def _train(self, epoch: int) -> None:
        """Train to the epoch's end, with a checkpoint wherever one is due, or at a stop."""
        end = epoch * self._plan.steps_per_epoch
        while self._step < end:
            self._train_to(self._plan.next_halt(self._step), epoch)
            self._collect()
            self._save(self.position)
            self._pace.raise_if_stopped()

    def _train_to(self, halt: int, epoch: int) -> None:
        first, before = self._step, (epoch - 1) * self._plan.steps_per_epoch

        def after_call(done: int) -> None:
            self._step = first + done
            self._reporter.step(self._step)
            self._progress(epoch, "training", self._step - before, self._plan.steps_per_epoch)

        after_call(0)
        self._pace.run(self._loop.train, self._batches.training, halt - first, after_call)

    def _collect(self) -> None:
        """Add what was trained since the last time to the epoch's sums."""
        totals = self._loop.totals()
        if not isfinite(totals.loss):
            message = f"the loss is {totals.loss} after step {self._step}"
            raise TrainingDivergedError(message)
        self._partial = self._partial.plus(totals, self._seconds_since())

    def _seconds_since(self) -> float:
        """Return the time since this was last asked: whatever the run was at, checkpoints too."""
        before, self._counted = self._counted, time.monotonic()
        return self._counted - before

    def _evaluate(self, epoch: int) -> Totals:
        def after_call(done: int) -> None:
            self._progress(epoch, "evaluating", done, self._plan.test_steps)

        self._loop.average_statistics()
        self._pace.run(
            self._loop.evaluate, self._batches.testing, self._plan.test_steps, after_call
        )
        self._pace.raise_if_stopped()
        return self._loop.totals()

    def _metrics(self, epoch: int, tested: Totals, test_seconds: float) -> EpochMetrics:
        trained, seconds = self._partial.totals, self._partial.seconds
        return EpochMetrics(
            epoch=epoch,
            step=epoch * self._plan.steps_per_epoch,
            loss=trained.mean_loss,
            accuracy=trained.accuracy,
            test_loss=tested.mean_loss,
            test_accuracy=tested.accuracy,
            test_examples=tested.examples,
            examples_per_second=round(trained.examples / max(seconds, 1e-9), 1),
            seconds=round(seconds + test_seconds, 3),
        )

    def _progress(self, epoch: int, what: str, done: int, total: int) -> None:
        self._reporter.doing(f"epoch {epoch}/{self._plan.epochs}  {what}: {done} of {total} steps")

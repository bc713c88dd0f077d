"""Explains failures of steps that work on a whole batch, as on one device, but not on a share.

Each explanation has found that the step works on the whole batch, and fails on the share:

1. fixed_size.py traces the step on both. It finds the script's own batch size, such as noise of
   shape `(BATCH, 4)`, and `x.shape[0]`, which may be None for a share.
2. on_a_share.py runs the step on both, if it failed while it ran. It finds the batch that failed,
   such as a short last one.
3. by_xla.py recognizes a function of the script's own that XLA would have to compile with the sums.
   It is recognized by the error alone.

All workers exit with 78, because a restart would fail again. There are two exceptions. A newcomer
ends by itself, because it must not end the workers that have trained. While workers are missing,
the error stays as it is, because the shares of all workers would be smaller.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, count_of, ring_of
from cluster_trainer.engine.building.unbuilt import Unbuilt
from cluster_trainer.engine.data.again import MOST_SECONDS, Again
from cluster_trainer.engine.failed_step import by_xla, fixed_size, on_a_share
from cluster_trainer.engine.failed_step.tracing import is_of_step
from cluster_trainer.engine.functions import runs_eagerly
from cluster_trainer.private.passed_on import PassedOn
from cluster_trainer.problems import ConfigurationError, Problem

log = logging.getLogger("trainer")
RUNS = "Graph execution error"
"""Text in the errors of steps that ran, not of those that were only traced."""
OTHER_CAUSES = (
    *(PassedOn, StopIteration, MemoryError, tf.errors.ResourceExhaustedError),
    *(tf.errors.OutOfRangeError, tf.errors.AbortedError, tf.errors.CancelledError),
    tf.errors.UnavailableError,
)
STEPS = {
    **dict.fromkeys(("fit", "train_on_batch"), "train_step"),
    **dict.fromkeys(("evaluate", "test_on_batch"), "test_step"),
    **dict.fromkeys(("predict", "predict_on_batch"), "predict_step"),
}


@contextmanager
def explained(model: Any, name: str, again: Callable[[], Again | None]) -> Iterator[None]:
    """Explain the failure of a call in the context if its step works on a whole batch.

    Args:
        model: the model that is called.
        name: the name of the call, a key of STEPS.
        again: reads the call's batches again; None: there are none.

    Raises:
        ConfigurationError: the step fails on a share only; it names the place in the script.
    """
    if count_of(model.distribute_strategy) == 1:
        yield
        return
    unbuilt, before = Unbuilt(model), _last_logs(model)
    try:
        yield
    except Exception as error:
        ring = ring_of(model.distribute_strategy)
        if (ring and ring.error) or not _may_be_explained(error):
            raise
        # If steps ran, the whole model is built and may have trained, so it is not restored.
        has_run = RUNS in str(error) or _last_logs(model) is not before
        restore = _nothing if has_run else unbuilt.restore
        restore()
        problem = by_xla.problem(error)
        if not problem:
            runs = has_run or runs_eagerly(model)
            problem = _problem(model, STEPS[name], again, error, runs=runs)
        if problem and not Replicas.of(model.distribute_strategy).are_some_missing:
            if ring and ring.rank not in ring.newcomers:
                ring.refuse(str(problem))
            raise ConfigurationError([problem]) from error
        restore()  # tracing may have built something
        raise


def _may_be_explained(error: Exception) -> bool:
    if isinstance(error, OTHER_CAUSES):
        return False
    return is_of_step(error) or fixed_size.may_be_of_shapes(error)


def _last_logs(model: Any) -> Any:
    """Return the logs of a model's last call in a `fit`; each call creates a new object."""
    return getattr(model.train_function, "logs", None) or None


def _nothing() -> None:
    pass


def _problem(
    model: Any, step: str, again: Callable[[], Again | None], error: Exception, *, runs: bool
) -> Problem | None:
    """Return the problem with a share of a batch; None if the cause is unclear or another one."""
    try:
        data = again()
        if data is None:
            return None
        log.info(
            "%s has failed: its batch is read again for at most %d s to find out whether only a "
            "share of the batch fails",
            *(step, 2 * MOST_SECONDS),
        )
        batches = iter(data.batches)
        first = next(batches)
        of_sizes = partial(fixed_size.problem, model, step, data.components)
        if found := of_sizes(first, error):
            return found
        if not runs:
            return fixed_size.problem_of_unknown_size(model, step, data.spec, first)
        failed = on_a_share.found(model, step, data.components, chain([first], batches))
        return (of_sizes(failed.whole, failed.error) or failed.problem()) if failed else None
    except Exception:  # the original error is raised instead
        log.debug("the failure could not be explained", exc_info=True)
        return None

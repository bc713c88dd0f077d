"""Says in words where TensorFlow can't combine the replicas of a process: in a branch of a step."""

from collections.abc import Iterator
from contextlib import contextmanager

from cluster_trainer.problems import ConfigurationError, Problem

# A strategy combines replicas where a replica's own graph ends, and not within a branch of it.
# These are the words by which its RuntimeError for that is known.
IN_A_BRANCH = "while defining a new graph or a tf.function"


@contextmanager
def outside_branches(what: str) -> Iterator[None]:
    """Surround a call that combines replicas by TensorFlow's strategy (`merge_call` and the like).

    Args:
        what: what is combined, such as "training (gradients)".

    Raises:
        ConfigurationError: the call is in a branch of the step, or in a function within it.
    """
    try:
        yield
    except RuntimeError as error:
        if IN_A_BRANCH not in str(error):
            raise
        raise ConfigurationError([_problem(what)]) from error


def _problem(what: str) -> Problem:
    return Problem(
        "a step",
        f"values to combine over replicas in a branch or an inner function (`tf.cond`): {what}",
        "values that each step combines outside of branches",
        "TensorFlow can't combine several devices, or workers of its own strategies, in a branch. "
        "Multiply gradients by 0 or 1 instead, or let the optimizer add them up "
        "(`gradient_accumulation_steps`). Call layers and losses outside of branches, and choose "
        "between their results with `tf.where`.",
    )

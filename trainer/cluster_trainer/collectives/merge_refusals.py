"""Explains that TensorFlow's strategies cannot combine replicas in a branch of a step."""

from collections.abc import Iterator
from contextlib import contextmanager

from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.user_frames import place_of_call

# A strategy can combine replicas in a replica's own graph, but not in a branch of it. Its
# RuntimeError then contains these words.
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
    place = place_of_call()
    at = f"The call is at {place}. " if place else ""
    return Problem(
        "a step",
        f"values to combine over replicas in a branch, a loop or a function of its own: {what}",
        "values that each step combines outside of these",
        f"{at}TensorFlow's strategies can't combine replicas there, as in `tf.cond`. Multiply "
        "gradients by 0 or 1 instead, or let the optimizer add them up "
        "(`gradient_accumulation_steps`). Build optimizers before the step. Call layers and losses "
        "outside of branches, and choose between their results with `tf.where`.",
    )

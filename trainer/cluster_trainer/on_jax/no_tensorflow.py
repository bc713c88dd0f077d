"""Ends a script that needs TensorFlow, which the JAX image lacks: code 78, after a message."""

import sys

from cluster_trainer.problems import ExitCode, Problem, render
from cluster_trainer.process.exit_code import leave_process

CLUSTER = "cluster_trainer.on_jax.workers.cluster"


def refuse(name: str) -> None:
    """End this process, and the other workers if they are connected.

    Args:
        name: the name of the missing module.
    """
    accepted = "a script that needs no TensorFlow, and no tf.data, in the JAX image"
    problem = Problem("import", name, accepted, "The image with TensorFlow runs it.")
    print(render([problem]), file=sys.stderr)  # noqa: T201
    if cluster := sys.modules.get(CLUSTER):  # Keras was imported before
        cluster.present().refuse(str(problem))
    leave_process(ExitCode.BAD_CONFIGURATION, None)

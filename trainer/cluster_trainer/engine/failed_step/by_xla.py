"""Recognizes a function of a script's own that XLA would have to compile with the sums.

XLA cannot compile a sum over workers, which calls Python. With `compile(jit_compile=True)`, the
engine requests XLA for the parts between the sums. A `tf.function(jit_compile=True)` of the
script's own is compiled as a whole.
"""

import re

from cluster_trainer.collectives.over_ring import SUM
from cluster_trainer.engine.waits import CLOCK
from cluster_trainer.problems import Problem

# TensorFlow 2.21's message (compiler/tf2xla/tf2xla_util and kernels/xla_launch_util).
UNSUPPORTED = re.compile(
    r"unsupported operations when trying to compile graph (?:__inference_)?(\w+)"
)
NUMBER = re.compile(r"_\d+$")


def problem(error: Exception) -> Problem | None:
    """Return the problem if XLA has refused a sum over workers; None for any other error."""
    text = str(error)
    found = UNSUPPORTED.search(text)
    if not found or not (SUM in text or CLOCK in text):
        return None
    name = NUMBER.sub("", found[1])
    return Problem(
        f"the function {name}",
        "jit_compile=True, and it applies gradients, or needs the other workers otherwise",
        "a tf.function without jit_compile, or one that returns the gradients",
        "Several workers sum gradients when an optimizer applies them, and XLA cannot compile that "
        "sum, which one device does not need. Write `jit_compile=True` in `compile` instead, "
        f"which compiles the rest of the step, or let {name} return the gradients, and apply them "
        "outside of it.",
    )

"""Tells whether an error of JAX means that another worker is gone, or is a local failure.

The error's status is not enough, because Gloo's errors are UNKNOWN. A single word is not enough
either, because errors of the user's own code may contain it. So only known texts count.
"""

import re

import jax

# JAX 0.10.2's messages of Gloo (xla/backends/cpu/collectives/gloo_communicator.cc) and of the
# coordination service, and NCCL's (ncclGetErrorString in nccl/src/init.cc).
SIGNS = re.compile(
    r"\bGloo [\w -]+ failed: "
    r"|remote process exited or there was a network error|unhandled system error"
    r"|CoordinationService(Error|/)"
    r"|stopped sending heartbeats"
)
OF_USERS_CODE = re.compile(r"Callback error")
"""A text in the error of a step if a Python function that it has called has failed."""


def tells_of_lost_peer(error: BaseException) -> bool:
    """Tell whether an error means that another worker is gone."""
    if not isinstance(error, jax.errors.JaxRuntimeError):
        return False
    text = str(error)
    return bool(SIGNS.search(text)) and not OF_USERS_CODE.search(text)

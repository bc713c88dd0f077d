"""Whether an error of TensorFlow's says that another worker is gone, or that something broke here.

The error's code alone does not tell: what breaks on this worker has any code (a GPU's faults are
InternalError, as NCCL's are), and a fault of another worker's reaches this one under the fault's
own code. The text tells: each call to another worker, and the coordination service, name themselves
in it.
"""

import re

# TensorFlow 2.21's own words (core/distributed_runtime, xla/tsl/distributed_runtime), and NCCL's
# (ncclGetErrorString in nccl/src/init.cc).
SIGNS = re.compile(
    r"information from remote target"
    r"|coordination ?(service|agent)"
    r"|heartbeat"
    r"|incarnation"
    r"|\brestarted\b"
    r"|barrier (timed out|failed)"
    r"|collective has timed out"
    r"|remote process exited|unhandled system error",
    re.IGNORECASE,
)
# The codes of what was broken off from elsewhere: where the text does not tell, it was a peer.
IN_DOUBT = ("UnavailableError", "AbortedError", "CancelledError")
# What TensorFlow puts above the line that says something: headings, and a traceback.
HEADING = re.compile(
    r"\s*$|Graph execution error:|Detected at node|in user code:|  File |\d+ root error\(s\) found"
)


def tells_of_lost_peer(error: Exception) -> bool:
    """Tell whether an error means that another worker is gone; in doubt it does."""
    names = {kind.__name__ for kind in type(error).__mro__}  # of classes that are not imported here
    if is_other_call(error):
        return False
    if "RingError" in names:
        return True
    if "OpError" not in names:
        return False
    return bool(SIGNS.search(str(error))) or type(error).__name__ in IN_DOUBT


def is_other_call(error: Exception) -> bool:
    """Tell whether workers of a ring are at different calls, which is their program's fault.

    Where one that is new, or what a survivor remembers, may be why, this is another error by now
    (`of_newcomer` in fits/lost_worker.py).
    """
    return any(kind.__name__ == "OtherCall" for kind in type(error).__mro__)


def gist(error: Exception) -> str:
    """Return an error's kind and the first line that says something."""
    lines = [line for line in str(error).splitlines() if not HEADING.match(line)]
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}"

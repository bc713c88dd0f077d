"""Tells whether an error of TensorFlow means that another worker is gone, or is a local failure.

The error's code is not enough. A local failure may have any code (GPU faults are InternalError,
like NCCL's), and another worker's failure arrives with its own code. The error's text decides: it
names calls to other workers, and the coordination service.
"""

import re

# TensorFlow 2.21's messages (core/distributed_runtime, xla/tsl/distributed_runtime), and NCCL's
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
# Codes of cancelled work: if the text does not decide, they count as caused by a peer.
IN_DOUBT = ("UnavailableError", "AbortedError", "CancelledError")
# Lines that TensorFlow prints above the informative line: headings, and a traceback.
HEADING = re.compile(
    r"\s*$|Graph execution error:|Detected at node|in user code:|  File |\d+ root error\(s\) found"
)


def tells_of_lost_peer(error: Exception) -> bool:
    """Tell whether an error means that another worker is gone; in doubt it does."""
    names = {kind.__name__ for kind in type(error).__mro__}  # of classes that are not imported here
    if is_other_call(error) or is_refusal(error):
        return False
    if "RingError" in names:
        return True
    if "OpError" not in names:
        return False
    return bool(SIGNS.search(str(error))) or type(error).__name__ in IN_DOUBT


def is_other_call(error: Exception) -> bool:
    """Tell whether workers of a ring are in different calls, which is their program's fault.

    If a newcomer or a survivor may be at fault instead, `of_newcomer` in fits/elastic_recovery.py
    has already replaced the error.
    """
    return any(kind.__name__ == "OtherCall" for kind in type(error).__mro__)


def gist(error: Exception) -> str:
    """Return an error's kind and its first informative line."""
    lines = [line for line in str(error).splitlines() if not HEADING.match(line)]
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}"


def is_refusal(error: Exception) -> bool:
    """Tell whether a worker of the ring has found that the program cannot train on several."""
    return any(kind.__name__ == "Refused" for kind in type(error).__mro__)

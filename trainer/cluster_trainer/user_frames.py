"""Finds the line of a user's own code from which something was called."""

import linecache
import re
import traceback
from collections.abc import Iterable

NOT_A_USERS = re.compile(
    r"/(keras|tensorflow|cluster_trainer|numpy)/|/lib/python3\.\d+/(?!site-packages)"
    r"|^<|/__autograph_generated_"
)


def last_of_a_user(frames: Iterable[tuple[str, int | None]]) -> str:
    """Return `FILE:LINE: text` of the last frame, a file and a line, in the user's own code."""
    own = [(file, line) for file, line in frames if line and not NOT_A_USERS.search(file)]
    if not own:
        return ""
    file, line = own[-1]
    return f"{file}:{line}: {linecache.getline(file, line).strip()}".rstrip(": ")


def place_of_call() -> str:
    """Return the place in the user's code from which this is called; "" if it is unknown."""
    return last_of_a_user((one.filename, one.lineno) for one in traceback.extract_stack())

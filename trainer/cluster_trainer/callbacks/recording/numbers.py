"""The numbers among a fit's logs, into which callbacks of a user's own may write anything."""

from typing import Any

import numpy as np

KINDS = "fiub"
"""Of NumPy's: floating-point and whole numbers, and booleans, which count as 0 and 1."""

MAX_NUMBERS = 100
"""Of one metric that is recorded; the lines of all epochs are in checkpoints, too."""


def numbers_in(value: Any) -> np.ndarray | None:
    """Return a value as an array of numbers; None if it is none, as a text."""
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001  a user's own class may raise anything
        return None
    if array.dtype.kind not in KINDS:
        return None
    return array.astype(np.int64) if array.dtype.kind == "b" else array

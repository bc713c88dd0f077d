"""What is done with a fit's first batch, as TRAINER_FIRST_BATCH says."""

from collections.abc import Callable

MODES = ("check", "refuse", "off")
_mode = MODES[0]
_available_bytes: Callable[[], int] | None = None


def use(mode: str, available_bytes: Callable[[], int] | None = None) -> None:
    """Do with each fit's first batch what is wanted from now on.

    Args:
        mode: check warns of what differs, refuse ends the fit, off compares nothing.
        available_bytes: returns how much memory is left; None: nobody asks.
    """
    global _mode, _available_bytes
    _mode, _available_bytes = mode, available_bytes


def is_off() -> bool:
    """Tell whether nothing is compared."""
    return _mode == "off"


def refuses() -> bool:
    """Tell whether a fit ends whose first batch differs."""
    return _mode == "refuse"


def available_bytes() -> int | None:
    """Return how much memory is left; None: it is not known."""
    return _available_bytes() if _available_bytes else None

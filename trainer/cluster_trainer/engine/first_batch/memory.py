"""How much memory a computation has taken at most; the whole batch takes so many times more."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Self

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
# What TensorFlow takes at its first steps, whatever they compute.
NOT_COUNTED = 64 * 2**20


class Peak:
    """The most memory that this process takes, beyond what it had.

    Args:
        before: how many bytes it had.
    """

    def __init__(self, before: int) -> None:
        self._before = before

    @classmethod
    def from_now(cls) -> Self:
        """Return the most from now on, beyond what it has now."""
        with suppress(OSError):
            CLEAR.write_text(RESET_PEAK)
        return cls(_resident("VmRSS"))

    def grown(self) -> int:
        """Return by how many bytes it has grown at most since; 0 where that cannot be known."""
        return max(0, _resident("VmHWM") - self._before - NOT_COUNTED)


def _resident(name: str) -> int:
    with suppress(OSError):
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
        if name in lines:
            return int(lines[name].split()[0]) * 1024
    return 0 if name == "VmHWM" else os.sysconf("SC_PAGE_SIZE")

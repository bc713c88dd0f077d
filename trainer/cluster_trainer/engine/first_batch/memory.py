"""Measures the peak memory of a share's step, to estimate the whole batch's."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
MIB = 2**20
NOT_COUNTED = 64 * MIB
"""The memory that TensorFlow always takes for its first steps."""


@dataclass(frozen=True)
class Peak:
    """The peak memory of this process since `from_now`, which found `before` bytes in use."""

    before: int

    @classmethod
    def from_now(cls) -> Self:
        """Begin a measurement of the peak."""
        with suppress(OSError):
            CLEAR.write_text(RESET_PEAK)
        return cls(_resident("VmRSS"))

    def grown(self) -> int:
        """Return the peak growth of the process, in bytes, beyond NOT_COUNTED; 0 if unknown."""
        return max(0, _resident("VmHWM") - self.before - NOT_COUNTED)


def refuse_to_run_out(wanted: int, available_bytes: Callable[[], int] | None) -> None:
    """Refuse to take more memory than is left.

    Args:
        wanted: the memory that is needed, in bytes.
        available_bytes: returns the memory that is left, in bytes; None: nothing is checked.

    Raises:
        MemoryError: less than `wanted` is left.
    """
    available = available_bytes() if available_bytes else None
    if available is not None and wanted > available:
        raise MemoryError(
            f"the whole batch may take {wanted // MIB} MiB on this worker, and {available // MIB} "
            "MiB are left"
        )


def _resident(name: str) -> int:
    with suppress(OSError):
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
        if name in lines:
            return int(lines[name].split()[0]) * 1024
    return 0 if name == "VmHWM" else os.sysconf("SC_PAGE_SIZE")

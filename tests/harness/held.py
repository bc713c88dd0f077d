"""Resources that this process holds."""

import threading
from pathlib import Path


def held() -> tuple[int, int]:
    """Return how many files this process has open, and how many threads it has."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

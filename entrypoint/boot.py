"""Which boot of which machine this is, and which container: host names do not tell that.

Containers with `--network host` have the name of their host.
"""

from __future__ import annotations

import os
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")


def this_boot() -> str:
    """Return the ID of this boot of this machine; the host name if the kernel has no boot ID."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return os.uname().nodename


def this_container() -> str:
    """Return an ID of this container: the same for all processes in one PID namespace."""
    try:
        return f"{this_boot()}/{PID_NAMESPACE.stat().st_ino}"
    except OSError:
        return f"{this_boot()}/{os.uname().nodename}"

"""Whether this is a container of a Kubernetes pod, for messages that say what to do.

The trainer has a twin of this file (`trainer/cluster_trainer/pod.py`), because the two packages
share no code.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

HOSTS = Path("/etc/hosts")
FIRST_LINE = b"# Kubernetes-managed hosts file"
"""The kubelet writes it in every pod, with its own network or the node's
(https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/)."""


def is_in_pod() -> bool:
    """Whether this process runs in a pod."""
    with suppress(OSError), HOSTS.open("rb") as file:
        return file.readline(256).startswith(FIRST_LINE)
    return False

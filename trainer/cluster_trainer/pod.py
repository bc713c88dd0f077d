"""Tells whether this is a container of a Kubernetes pod, for the advice in messages.

The entrypoint has a twin of this file (`entrypoint/pod.py`), because the two packages share no
code.
"""

from contextlib import suppress
from pathlib import Path

HOSTS = Path("/etc/hosts")
# The kubelet writes it in every pod, with its own network or the node's
# (https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/).
FIRST_LINE = b"# Kubernetes-managed hosts file"


def is_in_pod() -> bool:
    """Tell whether this process runs in a pod."""
    with suppress(OSError), HOSTS.open("rb") as file:
        return file.readline(256).startswith(FIRST_LINE)
    return False

"""`status [--json]`: shows the status of this container's worker.

The exit code is 0 if the worker is healthy, otherwise 1. The command is also the image's
HEALTHCHECK, so it imports nothing slow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from entrypoint.errors import put_out, say
from entrypoint.network.link import in_a_line
from entrypoint.pod import is_in_pod
from entrypoint.status.places import places
from entrypoint.status.reading import Status, read_all

AS_JSON = "--json"
EXIT_WELL, EXIT_NOT_WELL = 0, 1
"""A health check may use no other codes (docs.docker.com/reference/dockerfile/#healthcheck)."""
NOBODY = (
    "cluster-trainer: status: no worker runs in this container. Run the command in a worker's "
    "container: {} status [--json]."
)


def show_status(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the status of the workers here, usually one; return the exit code."""
    if list(arguments) not in ([], [AS_JSON]):
        received = " ".join(arguments)
        say(f'cluster-trainer: status: received "{received}"; accepted: {AS_JSON}, or nothing.')
        return EXIT_NOT_WELL
    workers = read_all(places(environ))
    if not workers:
        say(NOBODY.format("kubectl exec POD --" if is_in_pod() else "docker exec CONTAINER"))
        return EXIT_NOT_WELL
    write = as_json if arguments else as_text
    put_out("".join(write(worker) for worker in workers), "the status")
    return EXIT_NOT_WELL if any(worker.trouble for worker in workers) else EXIT_WELL


def as_text(status: Status) -> str:
    """Return a worker's status as a table of two columns, without unknown values."""
    rows = {
        "worker": status.worker,
        "state": f"{status.state}, for {status.seconds:.0f} s",
        "at": status.detail,
        "step": "" if status.step is None else str(status.step),
        "restarts": str(status.restarts),
        "slow": status.slow,
        "network": status.network,
        "links": in_a_line(status.links) if status.links else "",
        "last line": status.last_line,
        "unhealthy": status.trouble,
    }
    return "".join(f"{name:<10} {text}\n" for name, text in rows.items() if text)


def as_json(status: Status) -> str:
    """Return a worker's status as one object on one line."""
    since = time.gmtime(time.time() - status.seconds)
    members = vars(status) | {
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", since),
        "seconds": round(status.seconds, 1),
        "checkpoint_seconds": _rounded(status.checkpoint_seconds),
        "slow": bool(status.slow),
        "slow_reason": status.slow,
        "network_reason": status.network,
        "network_links": [link.members for link in status.links],
        "gate_wait_seconds": round(status.gate_wait_seconds, 1),
        "healthy": not status.trouble,
        "trouble": status.trouble,
    }
    for internal in ("late_seconds", "is_alive", "frozen", "network", "links"):
        del members[internal]
    return json.dumps(members) + "\n"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)

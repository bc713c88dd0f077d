"""The gate: all workers are there, reachable at their addresses, and agree.

Read `gate.py` first (`pass_gate`), what comes of it (`meeting.py`), then `roles/` (worker 0 and
the others), `comparison.py` (what contradicts what) and `transport/` (how two workers talk);
`ring/` then connects neighbours, and `peer_watch.py` looks at the peers after the gate.
Why it is so: docs/explanation/decisions/0004-the-gate.md and 0014-fewer-workers.md.
Imports asyncio, so import it only where it is needed.
"""

from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.gate import pass_gate
from entrypoint.rendezvous.outcome import (
    ContradictionError,
    PeersMissingError,
    PortClosedError,
    PortTakenError,
)

__all__ = [
    "ContradictionError",
    "Facts",
    "PeersMissingError",
    "PortClosedError",
    "PortTakenError",
    "pass_gate",
]

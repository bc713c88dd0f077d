"""The gate before TensorFlow: all workers are there, reachable at their addresses, and agree.

Read `gate.py` first (`pass_gate`), then `chief.py` and `member.py` (the two roles), `roll.py` (the
chief's list), `judge.py` (what contradicts what) and `connection.py` (how two workers talk). Why it
is so: docs/decisions/0004-the-gate.md. Imports asyncio, so import it where it is needed only.
"""

from entrypoint.rendezvous.errors import ContradictionError, PeersMissingError, PortTakenError
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.gate import pass_gate

__all__ = ["ContradictionError", "Facts", "PeersMissingError", "PortTakenError", "pass_gate"]

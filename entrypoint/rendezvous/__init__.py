"""The gate: all workers are there, reachable at their addresses, and agree.

Read `gate.py` first (`pass_gate`, `meet`), the states of a meeting (`states.py`), then `roles/`
(worker 0 and the others), `comparison.py` (what contradicts what) and `transport/` (how two workers
talk). `commands/` answers a command that asks for its neighbours, and `watch/` looks at the peers
after the gate. Why it is so: docs/explanation/decisions/0004-the-gate.md, 0019-one-meeting.md and
0014-fewer-workers.md.
Imports asyncio, so import it only where it is needed.
"""

"""The gate: waits until all workers are present, answer at their addresses, and agree.

Read `gate.py` first (`pass_gate`, `meet`), then the states of a meeting (`states.py`), `roles/`
(worker 0 and the others), `comparison.py` (the differences between workers) and `transport/` (the
messages between two workers). `commands/` answers a command that asks for its neighbours, and
`watch/` watches the peers after the gate. The reasons are in
docs/explanation/decisions/0004-the-gate.md, 0019-one-meeting.md and 0014-fewer-workers.md.

It imports asyncio, which is slow, so import it only where it is needed.
"""

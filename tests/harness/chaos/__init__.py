"""What the chaos tests are made of: machines that fail, what their workers did, and the table.

A `ChaosRun` (run.py) is three `Machine`s (machine.py) that train the saboteur's model
(tests/cluster/workspace/saboteur.py) and are killed, cut off or wiped by a test. What each training
process did is read back from its records (records.py) and compared with an undisturbed run
(reference.py); how long it took comes from the logs (recovery.py) and goes into
docs/explanation/survival.md (table.py).
"""

"""The parts of the chaos tests: machines that fail, the records of their workers, and the table.

A `ChaosRun` (run.py) consists of three `Machine`s (machine.py) that train the saboteur's model
(tests/cluster/workspace/saboteur.py). A test kills, disconnects or wipes them. Then it reads the
records of each training process (records.py), and compares them with an undisturbed run
(reference.py). The durations come from the logs (recovery.py), and go into
docs/explanation/survival.md (table.py).
"""

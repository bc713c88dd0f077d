"""Sums over worker processes without TensorFlow: a ring of sockets, in Python and NumPy.

`ring.py` is what the engine calls. `streams.py` moves bytes in both directions at once, `sums.py`
says what is added to what, `control.py` is the thread in which neighbours tell each other that they
live, and why a ring ends. docs/explanation/decisions/0010-the-ring.md says why it is so.
"""

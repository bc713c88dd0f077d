"""Sums over worker processes without TensorFlow: a ring of sockets, in Python and NumPy.

The engine calls `ring.py`. `streams.py` sends and receives bytes at the same time. `sums.py`
defines the order of additions. `control.py` is the thread that sends heartbeats, and reports why a
ring ends. The reasons are in docs/explanation/decisions/0010-the-ring.md.
"""

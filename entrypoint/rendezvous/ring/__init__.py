"""The ring: each worker is given two connections, to its left and its right neighbour.

Read `serve.py` first: it answers the command that asks. Then `regroup.py`, which goes from ring to
ring, by way of the gate; `formation.py`, which puts `left.py` and `right.py` together, what these
share (`state.py`), and what they were asked (`wanted.py`). Why it is so:
docs/explanation/decisions/0011-neighbours.md.
"""

"""A cluster on several machines, over SSH. Python 3.9 and its standard library alone.

`commands/up.py` shows a start in the order in which it happens.
"""

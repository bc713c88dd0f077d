"""A cluster on several machines, over SSH. It uses only Python 3.9 and the standard library.

`commands/up.py` shows a start in the order in which it happens.
"""

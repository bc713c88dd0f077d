"""Answers a command that asks for its neighbours, ring after ring.

Read `serve.py` first: it answers the command. `group.py` forms each ring in a meeting, and receives
workers that come while a ring trains without them.
"""

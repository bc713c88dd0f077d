"""A command that asks for its neighbours, from ring to ring.

Read `serve.py` first: it answers the command. `group.py` goes from ring to ring, each by way of a
meeting, and receives who comes while a ring trains without some workers.
"""

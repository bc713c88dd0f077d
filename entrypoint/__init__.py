"""The entrypoint of the image: determines the peers, then runs the command.

Read `__main__.py` first (the sequence), then `settings/environ.py` (where values come from),
`cluster/spec.py` (what a cluster is), `sources/` (one file per contract), `sources/resolve.py` (how
the sources agree), `start.py` (a resolved start), `peers.py` (the gate, the watch and the rings)
and `supervision/`. `settings/options.py` and `settings/environment_variable.py` declare all
variables.

It imports the standard library and python-dotenv, never tensorflow and never the trainer. It runs
at every start of every container. So modules that are slow to import (dotenv, socket, threading,
subprocess, asyncio) are imported only when they are needed.
"""

"""The entrypoint of the image: finds out who the peers are, then runs the command.

Read `__main__.py` first (the sequence), then `settings/environ.py` (where values come from),
`cluster/spec.py` (what a cluster is), `sources/` (one contract a file), `sources/resolve.py` (how
they agree), `start.py` (a resolved start), `peers.py` (what it does about its peers) and
`supervision/`. `settings/options.py` and `settings/environment_variable.py` declare all variables.

Imports the standard library and python-dotenv, never tensorflow and never the trainer. All of it
runs at every start of every container, so no module on the good path imports what is slow to
import: dotenv, socket, threading, subprocess, asyncio.
"""

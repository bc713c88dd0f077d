"""The entrypoint of the image: finds out who the peers are, then runs the command.

Read `__main__.py` first (the sequence), then `environ.py` (where values come from), `cluster.py`
(what a cluster is), `sources/` (one contract a file) and `resolve.py` (how they agree).
`variables.py` is the table of all variables.

Imports the standard library and python-dotenv, never tensorflow and never the trainer. All of it
runs at every start of every container, so no module on the good path imports what is slow to
import: typing, pathlib, socket, subprocess, asyncio.
"""

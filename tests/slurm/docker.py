#!/opt/venv/bin/python
"""Stands in for `docker run` on a node without Docker: runs the image's entrypoint in place.

A container would have only the variables that `--env` names, so the entrypoint gets no others.
"""

import argparse
import os
import sys

ENTRYPOINT = ["/usr/bin/tini", "-s", "-g", "--", "/opt/venv/bin/python", "-I", "-m", "entrypoint"]
IMAGES_OWN = ("PATH", "HOME", "USER", "LOGNAME", "PYTHONUNBUFFERED", "CLUSTER_TRAINER_VERSION")

parser = argparse.ArgumentParser()
parser.add_argument("run", choices=["run"])
for flag in ("--rm", "--read-only"):
    parser.add_argument(flag, action="store_true")
for option in ("--network", "--shm-size", "--user", "--tmpfs", "--cap-drop", "--volume"):
    parser.add_argument(option, required=True)
parser.add_argument("--env", action="append", default=[])
parser.add_argument("image")
parser.add_argument("command", nargs=argparse.REMAINDER)
given = parser.parse_args(sys.argv[1:])
assert given.volume == "/runs:/runs", given.volume
assert given.user == f"{os.getuid()}:{os.getgid()}", given.user
pairs = [text if "=" in text else f"{text}={os.environ[text]}" for text in given.env]
variables = {name: os.environ[name] for name in IMAGES_OWN}
variables |= dict(pair.split("=", 1) for pair in pairs)
os.execve(ENTRYPOINT[0], [*ENTRYPOINT, *given.command], variables)

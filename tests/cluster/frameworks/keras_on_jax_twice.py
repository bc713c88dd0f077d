"""Runs keras_on_jax.py in two processes, and prints their exit codes. HOW: together or after."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("keras_on_jax.py")
begun = []
for _ in range(2):
    begun.append(subprocess.Popen([sys.executable, str(PROGRAM)]))
    if os.environ["HOW"] == "after":
        begun[-1].wait()
print("ends", *sorted(one.wait() for one in begun))

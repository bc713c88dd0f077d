"""Runs the scripts beside this one unchanged, with one import of TensorFlow."""

import runpy
from pathlib import Path

for name in ("regression", "pictures", "language", "by_hand"):
    runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")

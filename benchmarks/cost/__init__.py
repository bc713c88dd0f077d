"""The cost of sums with any number of workers: a model, and measurements on this machine."""

import sys
from pathlib import Path

# The ring needs only NumPy, so it runs here as in the image.
sys.path.insert(0, str(Path(__file__).parents[2] / "trainer"))

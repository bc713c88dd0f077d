"""Packages that your code needs in addition to the image's: a requirements.txt, installed once.

`requirements.py` is all that a start without such a file pays for. `install.py` is the first start
with one: `run_pip.py` runs pip, `pip_failure.py` says what its failure means, `on_disk.py` makes
the result outlast a power loss. Why it is so: docs/explanation/decisions/0007-packages.md.
"""

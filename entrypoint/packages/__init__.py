"""Packages that your code needs in addition to the image's: a requirements.txt, installed once.

A start without such a file only runs `requirements.py`. The first start with one runs `install.py`:
`run_pip.py` runs pip, `pip_failure.py` explains a failure of pip, and `on_disk.py` makes sure that
the result survives a power loss. The reasons are in docs/explanation/decisions/0007-packages.md.
"""

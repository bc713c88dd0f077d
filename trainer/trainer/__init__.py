"""The package by its command's name: `python -m trainer`, `from trainer import fit`.

The code is cluster_trainer's; its modules are found under this name too.
"""

from cluster_trainer import __getattr__, __path__  # noqa: F401

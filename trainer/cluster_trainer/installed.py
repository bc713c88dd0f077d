"""Tells whether a file is a script's, Python's, an installed package's, or this project's."""

import sysconfig
from pathlib import Path

STANDARD = (sysconfig.get_path("stdlib"), "<frozen ")
PACKAGES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
OURS = str(Path(__file__).parents[1])


def is_installed(file: str) -> bool:
    """Tell whether a file belongs to Python or an installed package, not to a script."""
    return file.startswith((*STANDARD, *PACKAGES, OURS))

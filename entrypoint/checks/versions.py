"""The versions that must be the same on all workers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

TENSORFLOW = re.compile(r"tensorflow(?:_cpu)?-([^-]+)\.dist-info")
"""The folder whose name contains the installed version. Listing folders is faster than importing
TensorFlow (seconds) or using importlib.metadata."""

CUDA = re.compile(r"nvidia_cuda_runtime(?:_cu[0-9]+)?-([^-]+)\.dist-info")


def image_version(environ: Mapping[str, str]) -> str:
    """Return "0.1.0 (3a4601d)"; "" outside of an image."""
    version = environ.get("CLUSTER_TRAINER_VERSION", "")
    revision = environ.get("CLUSTER_TRAINER_REVISION", "")
    return f"{version} ({revision})" if version and revision else version


def tensorflow_version(path: Iterable[str] | None = None) -> str:
    """Return the version that is installed on the path (sys.path); "" if there is none."""
    return _installed(TENSORFLOW, path)


def cuda_version(path: Iterable[str] | None = None) -> str:
    """Return the version of CUDA's runtime, "12.9.79"; "" in a CPU image."""
    return _installed(CUDA, path)


def _installed(distribution: re.Pattern[str], path: Iterable[str] | None) -> str:
    """Return the version in the first matching folder name on the path; "" if there is none."""
    for folder in sys.path if path is None else path:
        try:
            names = [entry.name for entry in Path(folder or ".").iterdir()]
        except OSError:
            continue
        for name in names:
            if match := distribution.fullmatch(name):
                return match[1]
    return ""

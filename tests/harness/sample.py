"""Makes samples of data sets, like `make data-sample`."""

import os
import subprocess
from pathlib import Path

from harness.cluster import PROGRAM
from harness.compose import ROOT
from harness.workbench import Workbench

BUILD = ROOT / "scripts/build.sh"


def make_sample(bench: Workbench, folder: Path, pictures: int, *names: str) -> str:
    """Make samples of `pictures` pictures in a folder; return the output."""
    subprocess.run([BUILD, "pictures"], check=True, capture_output=True)
    own = {
        "IMAGE": bench.image,
        "DATA_DIR": str(folder),
        "SAMPLE_PICTURES": str(pictures),
        "RUN_UID": str(os.getuid()),
        "RUN_GID": str(os.getgid()),
    }
    ended = subprocess.run(
        [*PROGRAM, "data", "sample", *names],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout

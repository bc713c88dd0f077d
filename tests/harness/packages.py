"""Finds the image's packages on the engine's disk, for the workers of the tests.

Under fuse-overlayfs, each container reads its files again through its own process, which costs a
second of CPU time for each import of TensorFlow. But the layer with the packages is a folder on the
disk. A mount of this folder is read like any other folder.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from docker.models.images import Image
from docker.types import Mount

from local_cluster.settings.names import MAX_WORKERS

PLACE = "/opt/venv"


def packages_on_disk(image: Image) -> Path | None:
    """Return the folder that is PLACE in the image.

    Return None if a mount would gain nothing, or if this user may not read the engine's disk.
    """
    driver = image.attrs.get("GraphDriver")  # an engine with containerd's image store has none
    if not driver or driver["Name"] != "fuse-overlayfs":
        return None
    layers = [driver["Data"]["UpperDir"], *driver["Data"].get("LowerDir", "").split(":")]
    # Not Path.is_dir, which raises PermissionError before Python 3.14.
    found = [layer + PLACE for layer in layers if os.path.isdir(layer + PLACE)]  # noqa: PTH112
    return Path(found[0]) if len(found) == 1 else None  # several layers have a part each


def as_mounts(packages: Path | None) -> list[Mount]:
    """Return the packages as mounts for the Docker SDK."""
    return [Mount(PLACE, str(packages), type="bind", read_only=True)] if packages else []


def as_overlays(packages: Path | None, folder: Path) -> Sequence[Path]:
    """Return the compose files that mount the packages into every worker: one, or none."""
    if not packages:
        return []
    workers = [f"worker-{index}" for index in range(MAX_WORKERS)]
    mounted = f'{{volumes: ["{packages}:{PLACE}:ro"]}}'
    file = folder / "packages.yaml"
    file.write_text("\n".join(["services:", *(f"  {name}: {mounted}" for name in workers), ""]))
    return [file]

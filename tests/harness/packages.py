"""The image's packages as the engine's disk has them, for the workers of the tests.

Under fuse-overlayfs each container reads its files anew through a process of its own: a second of
a processor for each that imports TensorFlow. But the layer that holds the packages is a folder on
the disk, and mounted where it would appear it is read as any folder is.
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

    None where mounting it would gain nothing, or this user may not look at the engine's disk.
    """
    driver = image.attrs.get("GraphDriver")  # an engine whose images containerd keeps has none
    if not driver or driver["Name"] != "fuse-overlayfs":
        return None
    layers = [driver["Data"]["UpperDir"], *driver["Data"].get("LowerDir", "").split(":")]
    # Not Path.is_dir, which raises PermissionError before Python 3.14.
    found = [layer + PLACE for layer in layers if os.path.isdir(layer + PLACE)]  # noqa: PTH112
    return Path(found[0]) if len(found) == 1 else None  # of several, each holds a part


def as_mounts(packages: Path | None) -> list[Mount]:
    """Return what the Docker SDK starts a container with."""
    return [Mount(PLACE, str(packages), type="bind", read_only=True)] if packages else []


def as_overlays(packages: Path | None, folder: Path) -> Sequence[Path]:
    """Return the compose files that mount them into every worker: one in the folder, or none."""
    if not packages:
        return []
    workers = [f"worker-{index}" for index in range(MAX_WORKERS)]
    mounted = f'{{volumes: ["{packages}:{PLACE}:ro"]}}'
    file = folder / "packages.yaml"
    file.write_text("\n".join(["services:", *(f"  {name}: {mounted}" for name in workers), ""]))
    return [file]

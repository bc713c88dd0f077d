"""Identifies an image on any engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from local_cluster import engine

ACCELERATORS = "cluster-trainer.accelerators"
"""The label that says which accelerators an image is for (Dockerfile)."""
MACHINES = {"amd64": ("x86_64", "amd64"), "arm64": ("aarch64", "arm64")}


@dataclass(frozen=True)
class Image:
    """An image of this machine.

    Attributes:
        name: as it was given.
        fingerprint: its layers and what it starts: the same in any engine, unlike its id.
        size: in bytes.
        architecture: "amd64".
        for_gpus: whether its label says so.
    """

    FORM: ClassVar[str] = (
        "{{json .RootFS.Layers}}{{json .Config.Env}}"
        "{{json .Config.Entrypoint}}{{json .Config.Labels}}"
    )

    name: str
    fingerprint: str
    size: int
    architecture: str
    for_gpus: bool

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of the machines that run it, as `uname -m` has them."""
        return MACHINES.get(self.architecture, (self.architecture,))


def read(name: str) -> Image:
    """Return what the engine here knows of an image.

    Raises:
        EndError: it is not here.
    """
    engine.refuse_missing(name)
    form = "{{.Size}} {{.Architecture}} {{json .Config.Labels}}"
    size, architecture, labels = engine.output_of("image", "inspect", "--format", form, name).split(
        " ", 2
    )
    accelerators = (json.loads(labels) or {}).get(ACCELERATORS, "")
    fingerprint = engine.output_of("image", "inspect", "--format", Image.FORM, name)
    return Image(name, fingerprint, int(size), architecture, "gpu" in accelerators.split(","))

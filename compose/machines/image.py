"""Identifies an image on any engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from local_cluster import docker_engine

ACCELERATORS = "cluster-trainer.accelerators"
"""The label with the accelerators that an image supports (Dockerfile)."""
MACHINES = {"amd64": ("x86_64", "amd64"), "arm64": ("aarch64", "arm64")}


@dataclass(frozen=True)
class Image:
    """An image on this machine.

    Attributes:
        name: the name, as given.
        fingerprint: its layers, variables, entrypoint and labels, which all engines report alike,
            unlike the id.
        size: the size in bytes.
        architecture: the architecture, such as "amd64".
        for_gpus: whether its label names GPUs.
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
        """The architectures that can run it, as `uname -m` prints them."""
        return MACHINES.get(self.architecture, (self.architecture,))


def read(name: str) -> Image:
    """Read an image's properties from this machine's engine.

    Raises:
        EndError: the image is not on this machine.
    """
    docker_engine.refuse_missing(name)
    form = "{{.Size}} {{.Architecture}} {{json .Config.Labels}}"
    size, architecture, labels = docker_engine.output_of(
        "image", "inspect", "--format", form, name
    ).split(" ", 2)
    accelerators = (json.loads(labels) or {}).get(ACCELERATORS, "")
    fingerprint = docker_engine.output_of("image", "inspect", "--format", Image.FORM, name)
    return Image(name, fingerprint, int(size), architecture, "gpu" in accelerators.split(","))

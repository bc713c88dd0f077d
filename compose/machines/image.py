"""Identifies an image on any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from local_cluster import docker_engine
from local_cluster.messages import EXIT_CONFIGURATION, EndError

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
        for_gpus: whether it is for GPUs.
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
        EndError: the image is not on this machine, or is named by its digest, which `docker save`
            does not keep: the machines would not have it under this name.
    """
    if "@" in name:
        accepted = "a name with a tag; `docker tag` gives it one"
        raise EndError(EXIT_CONFIGURATION, f'IMAGE: received "{name}"; accepted: {accepted}.')
    docker_engine.refuse_missing(name)
    form = "{{.Size}} {{.Architecture}}"
    size, architecture = docker_engine.output_of("image", "inspect", "--format", form, name).split()
    fingerprint = docker_engine.output_of("image", "inspect", "--format", Image.FORM, name)
    return Image(name, fingerprint, int(size), architecture, docker_engine.is_for_gpus(name))

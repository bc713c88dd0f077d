"""One test session's place on the engine: the image under test, and names that only it uses."""

import itertools
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from docker import DockerClient
from docker.models.containers import Container
from docker.models.images import Image

from harness.packages import packages_on_disk

NAME_PREFIX = "ctt"


@dataclass(frozen=True)
class Workbench:
    """What containers of this session are made of and called.

    Attributes:
        client: the engine.
        image: name of the image under test.
        prefix: begins the name of every container, network, volume and Compose project.
    """

    client: DockerClient
    image: str
    prefix: str = field(default_factory=lambda: f"{NAME_PREFIX}-{secrets.token_hex(4)}")
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def new_name(self, kind: str) -> str:
        """Return a name that nothing on this engine has."""
        return f"{self.prefix}-{kind}-{next(self._numbers)}"

    def inspect_image(self) -> Image:
        """Return the image under test."""
        return self.client.images.get(self.image)

    @cached_property
    def packages(self) -> Path | None:
        """Where the image's packages are on the disk; see `packages_on_disk`."""
        return packages_on_disk(self.inspect_image())

    def start(self, *command: str, **options: object) -> Container:
        """Start a container in the background; options are the Docker SDK's, and `image`.

        It runs as this user unless told otherwise, so that what it writes to mounted folders can
        be removed again.
        """
        settings: dict[str, object] = {"user": own_user(), "name": self.new_name("run")} | options
        image = settings.pop("image", self.image)
        return self.client.containers.run(image, list(command), detach=True, **settings)

    def leftovers(self) -> list[str]:
        """Return what of this session is on the engine now, as `kind name`."""
        mine = {"name": self.prefix}
        found = [f"container {item.name}" for item in self.containers()]
        found += [f"network {item.name}" for item in self.client.networks.list(filters=mine)]
        return found + [f"volume {item.name}" for item in self.client.volumes.list(filters=mine)]

    def containers(self) -> list[Container]:
        """Return this session's containers, ended ones too."""
        return self.client.containers.list(all=True, filters={"name": self.prefix})


def own_user() -> str:
    """Return this process's user and group as `docker run --user` takes them."""
    return f"{os.getuid()}:{os.getgid()}"

"""A test session's place on the engine: the image under test, and names unique to the session."""

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
    """The engine, the image and the names of one test session.

    Attributes:
        client: the engine.
        image: the name of the image under test.
        prefix: the prefix of the names of all containers, networks, volumes and Compose projects.
    """

    client: DockerClient
    image: str
    prefix: str = field(default_factory=lambda: f"{NAME_PREFIX}-{secrets.token_hex(4)}")
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def new_name(self, kind: str) -> str:
        """Return a name that is unused on this engine."""
        return f"{self.prefix}-{kind}-{next(self._numbers)}"

    def inspect_image(self) -> Image:
        """Return the image under test."""
        return self.client.images.get(self.image)

    @cached_property
    def packages(self) -> Path | None:
        """The folder of the image's packages on the disk; see `packages_on_disk`."""
        return packages_on_disk(self.inspect_image())

    def start(self, *command: str, **options: object) -> Container:
        """Start a container in the background. Options are those of the Docker SDK, and `image`.

        By default it runs as this user, so that its files in mounted folders can be removed.
        """
        settings: dict[str, object] = {"user": own_user(), "name": self.new_name("run")} | options
        image = settings.pop("image", self.image)
        return self.client.containers.run(image, list(command), detach=True, **settings)

    def leftovers(self) -> list[str]:
        """Return the session's objects on the engine, as `kind name`."""
        mine = {"name": self.prefix}
        found = [f"container {item.name}" for item in self.containers()]
        found += [f"network {item.name}" for item in self.client.networks.list(filters=mine)]
        return found + [f"volume {item.name}" for item in self.client.volumes.list(filters=mine)]

    def containers(self) -> list[Container]:
        """Return this session's containers, including those that have ended."""
        return self.client.containers.list(all=True, filters={"name": self.prefix})


def own_user() -> str:
    """Return this process's user and group, in the format of `docker run --user`."""
    return f"{os.getuid()}:{os.getgid()}"

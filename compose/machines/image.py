"""Identifies an image on any engine, and copies it to the machines."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Queue
from threading import Thread
from typing import IO, ClassVar, cast

from local_cluster import engine
from local_cluster.messages import say
from machines.machine import Machine, last_line

ACCELERATORS = "cluster-trainer.accelerators"
"""The label that says which accelerators an image is for (Dockerfile)."""
MACHINES = {"amd64": ("x86_64", "amd64"), "arm64": ("aarch64", "arm64")}
PIECE = 1 << 20
QUEUED = 16
SAY_SECONDS = 5.0


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


def send(image: Image, machines: Sequence[Machine]) -> list[str]:
    """Save an image once, and load it on several machines at a time; return what went wrong."""
    names = ", ".join(machine.name for machine in machines)
    say(f"sending {image.name} ({image.size / 1e9:.1f} GB) to {names}")
    save = engine.start(["save", image.name], output=subprocess.PIPE, errors=subprocess.DEVNULL)
    loads = [_Load(machine) for machine in machines]
    sent, told = 0, time.monotonic()
    with cast("IO[bytes]", save.stdout) as pieces:
        while piece := pieces.read(PIECE):
            for load in loads:
                load.pieces.put(piece)
            sent += len(piece)
            if time.monotonic() > told + SAY_SECONDS:
                told = time.monotonic()
                share = min(99, 100 * sent // image.size)
                say(f"sending {image.name}: {share} % ({sent / 1e9:.1f} GB)")
    found = [problem for load in loads if (problem := load.end())]
    if save.wait():
        found.append(f"`docker save {image.name}` ended with {save.returncode}")
    return found


class _Load:
    """`docker load` on a machine, fed by a thread: a failed machine does not hold up the others."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.pieces: Queue[bytes] = Queue(QUEUED)
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = machine.start("docker load", source=pipe, output=null)
        self._thread = Thread(target=self._feed, daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Wait until the image is loaded; return what went wrong."""
        self.pieces.put(b"")
        self._thread.join()
        said = cast("IO[bytes]", self._process.stderr).read().decode(errors="replace")
        if self._process.wait() == 0:
            return ""
        return f"{self._machine.name}: the image could not be loaded: {last_line(said)}"

    def _feed(self) -> None:
        source = cast("IO[bytes]", self._process.stdin)
        has_all = False
        with suppress(OSError), source:
            while piece := self.pieces.get():
                source.write(piece)
            has_all = True
        while not has_all and self.pieces.get():  # so that the others get theirs
            pass

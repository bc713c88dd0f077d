"""Copies an image to the machines: reads it once, and loads it on all machines at the same time."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Queue
from threading import Thread
from typing import IO, cast

from local_cluster import docker_engine
from local_cluster.messages import say
from machines.image import Image
from machines.machine import Machine, last_line

PIECE = 1 << 20
QUEUED = 16
SAY_SECONDS = 5.0


def send(image: Image, machines: Sequence[Machine]) -> list[str]:
    """Save an image, and load it on all machines at the same time; return the error messages."""
    names = ", ".join(machine.name for machine in machines)
    say(f"sending {image.name} ({image.size / 1e9:.1f} GB) to {names}")
    save = docker_engine.start(
        ["save", image.name], output=subprocess.PIPE, errors=subprocess.DEVNULL
    )
    loads = [_Load.start(machine) for machine in machines]
    _feed_all(loads, cast("IO[bytes]", save.stdout), image)
    found = [problem for load in loads if (problem := load.end())]
    if save.wait():
        found.append(f"`docker save {image.name}` ended with {save.returncode}")
    return found


def _feed_all(loads: Sequence[_Load], source: IO[bytes], image: Image) -> None:
    """Send the whole stream to each machine, and print the progress."""
    sent, said = 0, time.monotonic()
    with source:
        while piece := source.read(PIECE):
            for load in loads:
                load.pieces.put(piece)
            sent += len(piece)
            if time.monotonic() > said + SAY_SECONDS:
                said = time.monotonic()
                share = min(99, 100 * sent // image.size)
                say(f"sending {image.name}: {share} % ({sent / 1e9:.1f} GB)")


class _Load:
    """`docker load` on a machine, fed by a thread: if it fails, the other machines continue."""

    def __init__(self, machine: Machine, process: subprocess.Popen[bytes]) -> None:
        self._machine, self._process = machine, process
        self.pieces: Queue[bytes] = Queue(QUEUED)
        self._thread = Thread(target=self._feed, daemon=True)

    @classmethod
    def start(cls, machine: Machine) -> _Load:
        """Start to load the pieces that are put into `pieces`."""
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        made = cls(machine, machine.start("docker load", source=pipe, output=null))
        made._thread.start()
        return made

    def end(self) -> str:
        """Wait until the image is loaded; return an error message, or ""."""
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
        while not has_all and self.pieces.get():  # a full queue would stop the others
            pass

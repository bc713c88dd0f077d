"""Lists the problems of one machine, from its facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from local_cluster.docker_engine import REMAPPED, ROOTLESS
from machines.checks.facts import RUN_OF, Facts
from machines.checks.own import Own
from machines.image import Image
from machines.machine import last_line

LINUX = "Linux"
FIRST_DOCKER = (20, 10)
FIRST_DRIVER = (525, 60)
"""The oldest driver that runs CUDA 12 (entrypoint/checks/nvidia_driver.py)."""
FREE_FOR_RUNS = 1 << 30
TIMES_IMAGE = 2
"""The free space that an image needs, as a multiple of its size: it is received and unpacked."""


def problems(facts: Facts, image: Image, own: Own) -> Iterator[str]:
    """Yield a sentence for each problem of a machine, without the machine's name.

    Args:
        facts: the machine's facts.
        image: the worker's image.
        own: the workers that this start replaces.
    """
    if facts.error:
        yield _of_answer(facts)
        return
    if facts.one("system") not in ("", LINUX):
        yield f"it runs {facts.one('system')}; accepted: {LINUX}"
        return
    if not facts.one("docker"):
        yield f"Docker does not answer there: {last_line(facts.one('docker_error'))}"
        return
    if printed := facts.one("printed"):
        yield (
            f'its login shell prints "{printed}" at each command, and Docker takes that for an '
            "answer; accepted: start-up files, such as ~/.bashrc, that print on a terminal only"
        )
    yield from _of_docker(facts)
    yield from _of_image(facts, image)
    if image.for_gpus or facts.machine.host.gpus:
        yield from _of_gpus(facts)
    yield from _of_users(facts)
    yield from _of_data(facts)
    yield from _of_folder(facts)
    yield from _of_port(facts, own)
    yield from _of_containers(facts, own)


def _of_answer(facts: Facts) -> str:
    """Return the sentence about a machine that did not answer."""
    error = facts.error.rstrip(".")
    if facts.logged_in:
        return f"its checks did not end: {error}"
    by_hand = f"ssh {' '.join(facts.machine.host.ssh)}"
    return (
        f"SSH cannot log in: {error}. Try `{by_hand}`: it has to work without a password, and with "
        "a host key that you have accepted."
    )


def _of_docker(facts: Facts) -> Iterator[str]:
    version = facts.one("docker")
    if _numbers(version) < FIRST_DOCKER:
        yield f"its Docker is {version}; accepted: 20.10 or later"


def _of_image(facts: Facts, image: Image) -> Iterator[str]:
    if facts.one("machine") not in image.machines:
        yield f"its processor is {facts.one('machine')}; the image is for {image.architecture}"
    free = 1024 * int(facts.one("docker_free") or 0)
    if not facts.has(image) and facts.one("docker_free") and free < TIMES_IMAGE * image.size:
        needed = TIMES_IMAGE * image.size / 1e9
        yield f"Docker has {free / 1e9:.1f} GB free; the image needs {needed:.1f}"


def _of_gpus(facts: Facts) -> Iterator[str]:
    if '"nvidia"' not in facts.one("runtimes"):
        yield "Docker has no NVIDIA runtime: install NVIDIA's container toolkit"
    gpus = [line.split(", ") for line in facts.told.get("gpu", [])]
    if not gpus:
        yield "nvidia-smi shows no GPU: install NVIDIA's driver"
        return
    wanted = {one for one in facts.machine.host.gpus.split(",") if one not in ("", "all")}
    if missing := wanted - {one[0] for one in gpus}:
        yield f"it has no GPU {', '.join(sorted(missing))}; it has {len(gpus)}"
    if _numbers(gpus[0][-1]) < FIRST_DRIVER:
        yield f"its NVIDIA driver is {gpus[0][-1]}; accepted: 525.60 or later"


def _of_users(facts: Facts) -> Iterator[str]:
    """Refuse rootless Docker and userns-remap.

    Workers need the user's id and the machine's network.
    """
    options = facts.one("security")
    if ROOTLESS in options:
        yield (
            "its Docker is rootless: the other machines would not reach the worker, and the "
            "results would belong to another user; accepted: Docker as root, with the user in the "
            "group docker. `docker context use default` selects it, if it is there"
        )
    elif REMAPPED in options:
        yield (
            "its Docker remaps users (userns-remap), so that a worker can neither use the "
            "machine's network nor write results; accepted: Docker without userns-remap"
        )


def _of_data(facts: Facts) -> Iterator[str]:
    """Refuse a data folder that has SSH keys or code, because workers can write there."""
    if facts.one("no_data"):
        yield f"there is no folder {facts.machine.host.data} (data=)"
    data = facts.one("real_data")
    if not data:
        return
    home = facts.one("real_home")
    for name, place in (("the home folder", home), ("the folder of dir=", facts.one("real_dir"))):
        if place and _is_in(place, data):
            accepted = "a folder that holds data sets only"
            yield f"data={facts.machine.host.data} contains {name}, {place}; accepted: {accepted}"
            return
    if home and _is_in(data, f"{home}/.ssh"):
        yield f"data={facts.machine.host.data} contains SSH keys; accepted: another folder"


def _is_in(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def _of_folder(facts: Facts) -> Iterator[str]:
    if place := facts.one("not_writable"):
        yield f"{place} cannot be written (dir={facts.folder})"
    if 1024 * int(facts.one("free") or 0) < FREE_FOR_RUNS:
        yield f"less than 1 GB is free in {facts.folder}"


def _of_port(facts: Facts, own: Own) -> Iterator[str]:
    port = int(facts.machine.host.port)
    if port in facts.listens and port not in own.running(facts).values():
        yield f"another program listens on port {port}; give another with port="


def _of_containers(facts: Facts, own: Own) -> Iterator[str]:
    """Refuse containers that this start does not replace: running workers, and a taken name."""
    by_hand = f"docker --host {facts.machine.engine.host} rm --force"
    others = "If this is another person's, set another COMPOSE_PROJECT_NAME=. Otherwise,"
    running = {*facts.told.get("there", [])} - {*own.running(facts)}
    if running:
        names = sorted(running)
        told = ", ".join(f"{one}{_of_run(facts.one(RUN_OF + one))}" for one in names)
        removes = f"`{by_hand} {' '.join(names)}` stops and removes it"
        yield f"this project runs there already: {told}. {others} {removes}"
    name, taken = facts.one("container"), facts.told.get("taken")
    if taken and name not in own.on(facts) and name not in running:
        told = f"there is already a container {name}{_of_run(taken[0])}, which has ended"
        yield f"{told}. {others} `{by_hand} {name}` removes it"


def _of_run(run: str) -> str:
    return f" of the run {run}" if run else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall("[0-9]+", version)[:2])

"""The rows about the machine: its GPUs, their driver, memory and connections, and /dev/shm."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster_trainer.data.memory import available_bytes
from cluster_trainer.selftest.gpus import (
    DIRECT,
    QUERY,
    Gpu,
    ask_nvidia_smi,
    count_files,
    parse_direct,
    parse_gpus,
)
from cluster_trainer.selftest.table import Row, State

GUIDE = "docs/how-to/gpus.md"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  looked at, and nothing is written
DRIVER = "NVIDIA driver"
SEVERAL = 2
UNSEEN = f"Install NVIDIA's driver and container toolkit ({GUIDE}), and unset CUDA_VISIBLE_DEVICES."
NO_GPU = "this machine has no GPU, or --gpus all is missing"
NO_ANSWER = "nvidia-smi does not answer here"
MOST_USED = 0.5
"""The part of a GPU's memory that other programs may use before the test fails."""


def machine_rows(environ: Mapping[str, str], warnings: Sequence[str], devices: Row) -> list[Row]:
    """Return the rows about the machine.

    Args:
        environ: the user's variables.
        warnings: the warnings of the entrypoint, which checks the machine at a start.
        devices: the row of the devices, with the facts from programs/devices.py.
    """
    gpus = parse_gpus(ask_nvidia_smi(QUERY, environ))
    direct = parse_direct(ask_nvidia_smi(DIRECT, environ)) if len(gpus) >= SEVERAL else {}
    return [
        gpus_row(devices, gpus, count_files()),
        driver_row(gpus, _about(warnings, DRIVER)),
        memory_row(gpus),
        direct_row(gpus, direct),
        shared_memory_row(_about(warnings, SHARED_MEMORY)),
    ]


def read_warnings(log: str) -> list[str]:
    """Return the warnings in the entrypoint's JSON lines."""
    found = []
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level") == "WARNING":
            found.append(str(entry.get("message", "")))
    return found


def gpus_row(devices: Row, listed: Sequence[Gpu], files: int) -> Row:
    """Compare the GPUs that TensorFlow sees with those of the machine."""
    facts = devices.facts
    if devices.state != State.HELD:
        return devices
    if wrong := [one for one in facts["sums"] if one != facts["expected"]]:
        found = f"a GPU computes {wrong[0]:g} in place of {facts['expected']:g}"
        return replace(devices, state=State.FAILED, found=found, advice="Replace the GPU.")
    if facts["gpus"]:
        seen = dict.fromkeys(f"{gpu['name']} ({gpu['capability']})" for gpu in facts["gpus"])
        return replace(devices, found=f"{len(facts['gpus'])}: {', '.join(seen)}; each computes")
    if there := max(len(listed), files):
        found = f"the container has {there}, and TensorFlow sees none"
        advice = UNSEEN if facts["for_gpus"] else "This image is for CPUs: run `make build-gpu`."
        return replace(devices, state=State.FAILED, found=found, advice=advice)
    return replace(devices, state=State.NOT_TRIED, found=NO_GPU)


def driver_row(gpus: Sequence[Gpu], warning: str) -> Row:
    """Return the row of the driver: its version, or the entrypoint's warning about it."""
    if warning:
        advice = f"Install a newer driver ({GUIDE})."
        return Row(name="driver", state=State.FAILED, found=warning, advice=advice)
    if not gpus:
        return Row(name="driver", state=State.NOT_TRIED, found=NO_ANSWER)
    return Row(name="driver", state=State.HELD, found=gpus[0].driver)


def memory_row(gpus: Sequence[Gpu]) -> Row:
    """Return the row of the GPUs' memory, or of this container's free memory."""
    if not gpus:
        found = f"{available_bytes() / 2**30:.1f} GiB of main memory are free"
        return Row(name="memory", state=State.HELD, found=found)
    known = [(gpu.used_mib, gpu.total_mib) for gpu in gpus]
    texts = [
        "unknown" if used is None or not total else f"{used} of {total} MiB"
        for used, total in known
    ]
    full = [
        str(number)
        for number, (used, total) in enumerate(known)
        if used is not None and total and used > MOST_USED * total
    ]
    found = f"used on each GPU: {', '.join(texts)}"
    if full:
        advice = f"Other programs use GPU {', '.join(full)}: nvidia-smi lists them."
        return Row(name="memory", state=State.FAILED, found=found, advice=advice)
    return Row(name="memory", state=State.HELD, found=found)


def direct_row(gpus: Sequence[Gpu], pairs: Mapping[tuple[int, int], str]) -> Row:
    """Return the row of peer access between GPUs. Without it, NCCL works, but more slowly."""
    name = "peer access"
    if len(gpus) < SEVERAL:
        return Row(name=name, state=State.NOT_TRIED, found="it takes two GPUs")
    if not pairs:
        return Row(name=name, state=State.NOT_TRIED, found=NO_ANSWER)
    facts = {f"{first}-{second}": status for (first, second), status in pairs.items()}
    lacking = [f"{pair} ({status})" for pair, status in facts.items() if status != "OK"]
    found = "between all GPUs"
    if lacking:
        found = f"not between GPUs {', '.join(lacking)}: NCCL uses {SHARED_MEMORY} there"
    return Row(name=name, state=State.HELD, found=found, facts=facts)


def shared_memory_row(warning: str) -> Row:
    """Return the row of /dev/shm: its size, or the entrypoint's warning about it."""
    if warning:
        advice = "Give the container --shm-size 1g."
        return Row(name=SHARED_MEMORY, state=State.FAILED, found=warning, advice=advice)
    try:
        system = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        return Row(name=SHARED_MEMORY, state=State.NOT_TRIED, found=str(error.strerror))
    size = system.f_blocks * system.f_frsize >> 20
    facts = {"mebibytes": size}
    return Row(name=SHARED_MEMORY, state=State.HELD, found=f"{size} MiB", facts=facts)


def _about(warnings: Sequence[str], subject: str) -> str:
    return next((one for one in warnings if one.startswith(subject)), "")

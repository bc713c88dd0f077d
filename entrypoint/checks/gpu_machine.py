"""Checks of a machine with GPUs before a start. They cost nothing on a machine without GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from entrypoint.checks.gpus import check_gpus, count_devices, shared_memory_warning
from entrypoint.checks.nvidia_driver import check_driver, kernels_warning
from entrypoint.checks.versions import cuda_version
from entrypoint.errors import all_of

CHOOSING = ("TRAINER_DEVICES", "TRAINER_LOGICAL_CPUS")
CHOOSING_FLAGS = ("--devices", "--logical-cpus", "--logical_cpus")
Resolve = Callable[[list[str]], Mapping[str, tuple[str, ...]]]
"""Hosts -> their IP addresses, without hosts that do not resolve."""


def check_machine(gpus_per_worker: int | None, environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError if TensorFlow would train on the CPU instead, or NCCL would fail."""
    gpus = count_devices(environ)
    steps: list[Callable[[], None]] = [lambda: check_gpus(gpus_per_worker, environ)]
    if gpus:
        # slow to import
        from entrypoint.checks.nccl_interface import (  # noqa: PLC0415
            check_interface,
            interfaces,
        )

        steps.append(lambda: check_driver(cuda_version(), gpus))
        steps.append(lambda: check_interface(environ, gpus, interfaces))
    all_of(*steps)


def devices_of(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the kind of device that a command uses: "CPU" or "GPU"; "" if a setting chooses it."""
    if any(environ.get(name) for name in CHOOSING):
        return ""
    if any(argument.startswith(CHOOSING_FLAGS) for argument in command):
        return ""
    return "GPU" if count_devices(environ) and cuda_version() else "CPU"


def machine_warnings(environ: Mapping[str, str]) -> list[str]:
    """Return warnings about the shared memory and the driver of a container with GPUs."""
    gpus = count_devices(environ)
    if not gpus:
        return []
    said = [shared_memory_warning(gpus), kernels_warning(cuda_version(), environ)]
    return [warning for warning in said if warning]


def network_note(
    environ: Mapping[str, str], peers: Mapping[str, str], resolve: Resolve
) -> str | None:
    """Return a note about the interface that leads to the peers. Call it after the gate.

    Args:
        environ: the command's variables.
        peers: each peer's name -> its host.
        resolve: finds the hosts' IP addresses.
    """
    if not count_devices(environ):
        return None
    from entrypoint.checks.nccl_interface import (  # noqa: PLC0415 -- only where there are GPUs
        interfaces,
        route_note,
        route_to,
    )

    known = resolve(list(peers.values()))
    found = {peer: known[host][0] for peer, host in peers.items() if known.get(host)}
    return route_note(environ, found, interfaces(), route_to)

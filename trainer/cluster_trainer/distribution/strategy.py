"""Builds the strategy (none, mirrored or multiworker), after setting devices and threads.

TensorFlow reads TF_CONFIG and starts its gRPC server when MultiWorkerMirroredStrategy is
constructed. From then on it refuses changes to threads and devices.
"""

from typing import Literal

import tensorflow as tf

from cluster_trainer.distribution.logical_cpus import LogicalCpusStrategy
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.processors import available_cpus
from cluster_trainer.settings.clusters import may_be_ring
from cluster_trainer.settings.names import devices
from cluster_trainer.settings.names.spellings import shown_name
from cluster_trainer.settings.task import Task

Choice = Literal["none", "mirrored", "multiworker", "ring"]
NCCL_PACK_BYTES = 32 * 1024**2
"""The number of bytes of gradients that NCCL sums at once.

Without packs, all gradients are one sum, which begins after the last one is computed. With packs,
the last layers' gradients are already being sent by then (TensorFlow's
tf.distribute.experimental.CommunicationOptions). PyTorch's DistributedDataParallel uses 25 MiB
(`bucket_cap_mb`). This value was not measured, because no GPU was available.
"""


def choose(
    wanted: str, collectives: str, task: Task, local_devices: tuple[str, ...], *, may_ring: bool
) -> Choice:
    """Resolve `auto` to the cluster, if there is one, or to this machine's devices.

    Args:
        wanted: the setting `strategy`.
        collectives: the setting `collectives`, which chooses how workers sum.
        task: this worker's task, with the number of workers.
        local_devices: the devices of this worker that train.
        may_ring: whether there is an entrypoint that can connect a ring.
    """
    if wanted in ("auto", "multiworker") and task.num_workers > 1:
        is_fit = may_ring and len(local_devices) == 1 and not on_gpus(local_devices)
        is_ring = may_be_ring(wanted, collectives) and (is_fit or collectives == "ring")
        return "ring" if is_ring else "multiworker"
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    return "mirrored" if len(local_devices) > 1 else "none"


def count_gpus() -> int:
    """Return the number of GPUs that this process can use."""
    return len(tf.config.list_physical_devices("GPU"))


def set_devices(wanted: str | None, logical_cpus: int | None) -> tuple[str, ...]:
    """Hide devices that do not train; return TensorFlow's names of the others, one per replica.

    Args:
        wanted: the setting `devices`; None: all GPUs, or the CPU if there are none.
        logical_cpus: the number of devices into which the CPU is divided, without GPUs; None: it is
            not divided.

    Raises:
        ConfigurationError: a device in `wanted` does not exist.
    """
    cpus = devices.numbered("CPU", logical_cpus or 1)
    gpus = devices.numbered("GPU", count_gpus())
    chosen = cpus if logical_cpus or not gpus else gpus
    if wanted is not None:
        chosen = tuple(wanted.split(","))
    if not {*chosen} <= {*cpus, *gpus}:
        accepted = " ".join([*gpus, *cpus])
        advice = "TensorFlow sees no other here." + ("" if gpus else " Is --gpus all missing?")
        raise ConfigurationError([Problem(shown_name("devices"), str(wanted), accepted, advice)])
    return _set_cpus(chosen, logical_cpus) if chosen[0] in cpus else _set_gpus(chosen)


def _set_cpus(chosen: tuple[str, ...], logical_cpus: int | None) -> tuple[str, ...]:
    tf.config.set_visible_devices([], "GPU")
    if logical_cpus:
        cpu, *_ = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(logical_cpus)]
        tf.config.set_logical_device_configuration(cpu, parts)
    return chosen


def _set_gpus(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Hide all other GPUs, and return the new names: TensorFlow renumbers those that are left."""
    there = tf.config.list_physical_devices("GPU")
    gpus = [there[int(name.removeprefix("GPU:"))] for name in chosen]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)  # noqa: FBT003  TensorFlow's signature
    return devices.numbered("GPU", len(gpus))


def set_threads(threads: int | Literal["auto"], local_devices: tuple[str, ...]) -> int:
    """Set the sizes of TensorFlow's thread pools, and return the number of threads.

    Each device of the CPU gets a share of the threads within operations. Otherwise each of them
    would use all threads. With shares, two devices on two cores took a third less CPU time per
    step.
    """
    count = available_cpus() if threads == "auto" else threads
    shared_by = 1 if on_gpus(local_devices) else len(local_devices)
    tf.config.threading.set_intra_op_parallelism_threads(max(1, count // shared_by))
    tf.config.threading.set_inter_op_parallelism_threads(count)
    return count


def build(choice: Choice, local_devices: tuple[str, ...]) -> tf.distribute.Strategy:
    """Construct the strategy; with several workers, return when all of them are there."""
    if choice == "mirrored":
        return tf.distribute.MirroredStrategy(list(local_devices))
    if choice != "multiworker":
        return tf.distribute.get_strategy()
    options = communication_options(local_devices)
    if on_gpus(local_devices) or local_devices == ("CPU:0",):  # TensorFlow's own default
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return LogicalCpusStrategy(local_devices, options)


def communication_options(
    local_devices: tuple[str, ...],
) -> tf.distribute.experimental.CommunicationOptions:
    """Return options for NCCL with packs on GPUs, where AUTO would mean RING; else for RING."""
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions
    if on_gpus(local_devices):
        return options(bytes_per_pack=NCCL_PACK_BYTES, implementation=kinds.NCCL)
    return options(implementation=kinds.RING)


def on_gpus(local_devices: tuple[str, ...]) -> bool:
    """Tell whether the replicas are on GPUs; they are all of one kind."""
    return local_devices[0].startswith("GPU")

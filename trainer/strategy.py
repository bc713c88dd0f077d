"""The strategy: none, mirrored or multiworker; devices and threads, set before it exists.

TensorFlow reads TF_CONFIG and starts its gRPC server when MultiWorkerMirroredStrategy is
constructed, and refuses changes to threads and devices from then on.
"""

import os
from pathlib import Path
from typing import Literal

import tensorflow as tf

from trainer.task import Task

Choice = Literal["none", "mirrored", "multiworker"]
CGROUP_V2_QUOTA = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def choose(wanted: str, task: Task, num_gpus: int) -> Choice:
    """Resolve `auto`: the cluster if there is one, else this machine's GPUs if several."""
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    if task.num_workers > 1:
        return "multiworker"
    return "mirrored" if num_gpus > 1 else "none"


def configure_devices(threads: int | Literal["auto"]) -> int:
    """Set thread pools and GPU memory; return the number of GPUs that TensorFlow sees."""
    count = available_cpus() if threads == "auto" else threads
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)  # noqa: FBT003  TensorFlow's signature
    return len(gpus)


def build(choice: Choice, num_gpus: int) -> tf.distribute.Strategy:
    """Construct the strategy; for several workers this returns when all of them are there."""
    if choice == "multiworker":
        options = communication_options(num_gpus)
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if choice == "mirrored":
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def communication_options(num_gpus: int) -> tf.distribute.experimental.CommunicationOptions:
    """Ask for NCCL where every replica is a GPU; AUTO would mean RING even there."""
    kinds = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.NCCL if num_gpus else kinds.RING
    )


def available_cpus() -> int:
    """Count the CPUs this process may use: its affinity, and the container's quota.

    TensorFlow and Python see a cpuset, but neither sees a quota (`docker run --cpus`).
    """
    quota = cpu_quota()
    allowed = len(os.sched_getaffinity(0))
    return allowed if quota is None else max(1, min(allowed, round(quota)))


def cpu_quota(v2: Path = CGROUP_V2_QUOTA, v1: Path = CGROUP_V1) -> float | None:
    """Return the container's CPU quota in CPUs, None without one; cgroup v2, else v1."""
    try:
        if v2.exists():
            quota, period = v2.read_text().split()
        else:
            quota = (v1 / "cpu.cfs_quota_us").read_text().strip()
            period = (v1 / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)

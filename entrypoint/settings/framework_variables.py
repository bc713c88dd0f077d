"""The cluster in the variables of Keras, JAX and PyTorch, for commands that use them.

- Keras, `keras.distribution.initialize`:
  https://keras.io/api/distribution/initialization_functions/
- JAX, `jax.distributed.initialize`:
  https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html
- PyTorch, `torch.distributed.init_process_group("env://")`:
  https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization

Each worker is one process. The process of rank 0 listens on its worker's address, like TensorFlow.
The gate closes that port before the command starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.cluster.spec import Resolution
from entrypoint.settings.unrelated_variables import is_service_link

NAMES = (
    (
        "KERAS_DISTRIBUTION_JOB_ADDRESSES",
        "KERAS_DISTRIBUTION_NUM_PROCESSES",
        "KERAS_DISTRIBUTION_PROCESS_ID",
    ),
    ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"),
)
"""The variables of each framework. They are set together or not at all."""


def framework_variables(
    resolution: Resolution | None, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of each framework for which none is set.

    If a user or a scheduler has set one of a framework's variables, none is added: our rank would
    not match their address. An empty value sets nothing, and neither does Kubernetes' variable for
    a Service, such as MASTER_PORT=tcp://… for one named `master`.

    Args:
        resolution: the cluster and the task. A single worker or an evaluator gets no variables.
        variables: the command's other variables.
    """
    if not resolution or resolution.rank is None:
        return {}
    addresses = resolution.spec.addresses
    first, count, rank = addresses[0], str(len(addresses)), str(resolution.rank)
    values = {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(map(str, addresses)),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": count,
        "KERAS_DISTRIBUTION_PROCESS_ID": rank,
        "JAX_COORDINATOR_ADDRESS": str(first),
        "JAX_NUM_PROCESSES": count,
        "JAX_PROCESS_ID": rank,
        "MASTER_ADDR": first.host,
        "MASTER_PORT": str(first.port),
        "WORLD_SIZE": count,
        "RANK": rank,
        "LOCAL_RANK": "0",
    }
    unset = [names for names in NAMES if not any(_is_set(name, variables) for name in names)]
    return {name: values[name] for names in unset for name in names}


def framework_notes(resolution: Resolution | None, variables: Mapping[str, str]) -> list[str]:
    """Return notes about given variables that were ignored, or that keep others unset."""
    if not resolution or resolution.rank is None:
        return []
    notes = []
    for names in NAMES:
        is_set = {name: _is_set(name, variables) for name in names}
        given = [name for name in names if is_set[name]]
        others = ", ".join(name for name in names if not is_set[name])
        if given and others:
            notes.append(f"{given[0]} is set: {others} are not, because they might not match it")
        if not given:
            ignored = [name for name in names if name in variables]
            notes += [f"ignored {name}: {_why(variables[name])}" for name in ignored]
    return notes


def _is_set(name: str, variables: Mapping[str, str]) -> bool:
    text = variables.get(name, "")
    return bool(text.strip()) and not is_service_link(name, text)


def _why(text: str) -> str:
    return "set by Kubernetes for a Service of that name" if text.strip() else "it is empty"

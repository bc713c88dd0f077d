"""The common parts of files for Kubernetes: the pod, the claim for /runs, the failure policy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from entrypoint.export.job import Job
from entrypoint.export.quoting import in_yaml, list_in_yaml, literal
from entrypoint.export.templating import fill_in

KINDS = ("kubernetes", "jobset", "trainjob", "tfjob")
"""The kinds that keep their results in a PersistentVolumeClaim."""

FAILURES_PER_WORKER = 6
"""Kubernetes' default for a whole Job. Here, one loss may end the pods of all workers."""

VARIABLES = {
    "FAILURE_FILE": "/dev/termination-log",
    # A node counts as dead after 50 s, and its pods are evicted 30 s later. The pod is replaced
    # when the node is removed, by the cloud or by hand.
    "RENDEZVOUS_TIMEOUT": "1800",
    "STARTUP_TIMEOUT": "1800",
    # Below terminationGracePeriodSeconds.
    "STOP_GRACE_SECONDS": "50",
}

READINESS = """
    readinessProbe:
      exec: {command: [status]}
      periodSeconds: 10
      timeoutSeconds: 10"""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """The properties of a pod that depend on the kind of file."""

    container: str
    """The name of the container. Some controllers require a particular name."""
    variables: Mapping[str, str]
    indent: int
    subdomain: str = ""
    """The headless Service through which pods have names; "" if the controller sets it."""
    has_arguments: bool = True
    """Whether the pod contains the command; otherwise another part of the file does."""
    is_probed_for_readiness: bool = True
    restart_policy: str = "Never"
    """"" if the controller sets it."""

    def fields(self, job: Job) -> dict[str, str]:
        """Return the values of the parts that all templates share."""
        return {
            "claim": _claim(job),
            "pod": self._lines(job),
            "policy": self._policy(job),
        }

    def _lines(self, job: Job) -> str:
        readiness = READINESS if self.is_probed_for_readiness else ""
        text = fill_in(
            "pod.yaml",
            name=job.name,
            subdomain=f"subdomain: {in_yaml(self.subdomain)}\n" if self.subdomain else "",
            restart_policy=f"restartPolicy: {self.restart_policy}\n" if self.restart_policy else "",
            container=self.container,
            image=in_yaml(job.image),
            arguments=f"\n    args: {arguments(job)}" if self.has_arguments else "",
            variables=variables(self.variables, indent=6),
            limits=f"{{nvidia.com/gpu: {job.gpus}}}" if job.gpus else "{}",
            readiness=readiness,
        )
        return _indented(text, self.indent)

    def _policy(self, job: Job) -> str:
        failures = str(FAILURES_PER_WORKER * job.workers)
        text = fill_in("policy.yaml", failures=failures, container=self.container)
        return _indented(text, self.indent - 4)


def arguments(job: Job) -> str:
    """Return the command as a list on one line."""
    return list_in_yaml(map(literal, job.command))


def variables(given: Mapping[str, str], indent: int) -> str:
    """Return a container's variables; the first line is not indented."""
    entries = (
        f"- {{name: {name}, value: {in_yaml(literal(value))}}}" for name, value in given.items()
    )
    return f"\n{' ' * indent}".join(entries)


def _claim(job: Job) -> str:
    storage_class, _, size = job.storage.rpartition(":")
    chosen = f"\n  storageClassName: {in_yaml(storage_class)}" if storage_class else ""
    return fill_in("claim.yaml", name=job.name, size=in_yaml(size), storage_class=chosen).rstrip()


def _indented(text: str, indent: int) -> str:
    """Indent all lines but the first one."""
    return textwrap.indent(text.rstrip(), " " * indent).lstrip()

"""Pods on the Docker engine: containers that follow a manifest's pod template.

There is no control plane. This module applies a template like Kubernetes, field by field: host
name, variables, volumes, user, limits and the kubelet's own files. An unknown field is an error, so
that no part of a manifest is ignored.
"""

import copy
import io
import json
import re
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from docker.models.containers import Container

from harness.ended import run_and_remove
from harness.packages import as_mounts
from harness.workbench import Workbench

Manifest = Mapping[str, Any]
NAMESPACE = "default.svc.cluster.local"
# Every pod has these variables of the API server's own Service, even without service links.
OF_EVERY_POD = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_SERVICE_PORT_HTTPS": "443",
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
    "KUBERNETES_PORT_443_TCP_PORT": "443",
    "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
}
HOSTS = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"
TERMINATION_LOG = "/dev/termination-log"
OF_POD = {
    *("containers", "volumes", "securityContext", "subdomain", "terminationGracePeriodSeconds"),
    *("restartPolicy", "enableServiceLinks", "tolerations"),  # for the controller and the node
}
OF_CONTAINER = {
    *("name", "image", "args", "env", "resources", "securityContext", "volumeMounts"),
    *("terminationMessagePolicy", "readinessProbe", "livenessProbe"),
}
OF_SECURITY = {
    *("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy"),
    *("seccompProfile", "allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"),
}
UNITS = {"Mi": 2**20, "Gi": 2**30}


def read_manifests(text: str) -> dict[str, Manifest]:
    """Return the documents of a file by kind; each kind may occur only once."""
    documents = list(yaml.safe_load_all(text))
    found = {document["kind"]: document for document in documents}
    assert len(found) == len(documents), [document["kind"] for document in documents]
    return found


@dataclass(frozen=True)
class Template:
    """A pod that a controller creates.

    Attributes:
        name: its host name.
        spec: the pod template's `spec`.
        variables: the variables that the controller adds.
        aliases: more names besides `name.subdomain`, from its own Service.
    """

    name: str
    spec: Manifest
    variables: Mapping[str, str] = field(default_factory=dict)
    aliases: Sequence[str] = ()

    @property
    def grace_seconds(self) -> int:
        """The time between SIGTERM and SIGKILL, in seconds."""
        return int(self.spec.get("terminationGracePeriodSeconds", 30))

    @property
    def container(self) -> Manifest:
        """Its only container."""
        (container,) = self.spec["containers"]
        return container


def indexed(job: Manifest, name: str = "") -> list[Template]:
    """Return the pods of an Indexed Job."""
    spec, name = job["spec"], name or job["metadata"]["name"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    return [
        Template(f"{name}-{i}", spec["template"]["spec"], {"JOB_COMPLETION_INDEX": str(i)})
        for i in range(spec["completions"])
    ]


def of_jobset(jobset: Manifest) -> list[Template]:
    """Return the pods of a JobSet's Jobs, with the names that JobSet documents."""
    name, spec = jobset["metadata"]["name"], jobset["spec"]
    subdomain = spec["network"].get("subdomain", name)
    (replicated,) = spec["replicatedJobs"]
    assert replicated.get("replicas", 1) == 1
    job = {"completionMode": "Indexed", **replicated["template"]["spec"]}
    template = job["template"]
    job["template"] = {**template, "spec": {**template["spec"], "subdomain": subdomain}}
    return indexed({"spec": job}, f"{name}-{replicated['name']}-0")


def trainjobs_jobset(found: Mapping[str, Manifest]) -> Manifest:
    """Return the JobSet that Kubeflow Trainer makes from a TrainJob and its runtime.

    Source: pkg/runtime/framework/plugins of https://github.com/kubeflow/trainer.
    """
    job, runtime = found["TrainJob"], copy.deepcopy(found["TrainingRuntime"])
    trainer = job["spec"]["trainer"]
    jobset = runtime["spec"]["template"]
    (node,) = jobset["spec"]["replicatedJobs"]
    label = node["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"]
    assert (node["name"], label) == ("node", "trainer")
    spec = node["template"]["spec"]
    spec |= {"completions": trainer["numNodes"], "parallelism": trainer["numNodes"]}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["name"] == "node"
    container |= {"image": trainer["image"], "args": trainer["args"]}
    merged = {entry["name"]: entry for entry in (*container["env"], *trainer["env"])}
    container["env"] = list(merged.values())
    return {"metadata": job["metadata"], **jobset}


def of_trainjob(found: Mapping[str, Manifest]) -> list[Template]:
    """Return the pods of a TrainJob, with the variables of its runtime's torch policy."""
    assert found["TrainingRuntime"]["spec"]["mlPolicy"]["torch"] == {}
    name = found["TrainJob"]["metadata"]["name"]
    pods = of_jobset(trainjobs_jobset(found))
    common = {
        "PET_NNODES": str(len(pods)),
        "PET_NPROC_PER_NODE": "auto",
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
        "PET_MASTER_PORT": "29500",
    }
    return [
        replace(pod, variables={**pod.variables, **common, "PET_NODE_RANK": str(rank)})
        for rank, pod in enumerate(pods)
    ]


def of_tfjob(found: Mapping[str, Manifest]) -> list[Template]:
    """Return the pods of a TFJob, each with its own Service and TF_CONFIG.

    Source: pkg/controller.v1/tensorflow of https://github.com/kubeflow/training-operator.
    """
    job = found["TFJob"]
    (worker,) = job["spec"]["tfReplicaSpecs"].values()
    names = [f"{job['metadata']['name']}-worker-{i}" for i in range(worker["replicas"])]
    cluster = {"worker": [f"{name}.default.svc:2222" for name in names]}
    return [
        Template(
            name,
            worker["template"]["spec"],
            {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": cluster,
                        "task": {"type": "worker", "index": index},
                        "environment": "cloud",
                    }
                )
            },
            [name, f"{name}.default.svc"],
        )
        for index, name in enumerate(names)
    ]


def action(policy: Manifest, code: int, *, is_disrupted: bool) -> str:
    """Return the action of a podFailurePolicy for a failed pod. The first matching rule counts."""
    for rule in policy["rules"]:
        if "onPodConditions" in rule:
            (condition,) = rule["onPodConditions"]
            assert condition["type"] == "DisruptionTarget"
            fits = is_disrupted
        else:
            codes = rule["onExitCodes"]
            assert codes["operator"] == "In"
            fits = code in codes["values"]
        if fits:
            return str(rule["action"])
    return "Count"


@dataclass(frozen=True)
class Pods:
    """A namespace: the network on which pods find each other, and the claims that they mount.

    Attributes:
        bench: the engine and the image.
        network: the network's name.
        folder: a folder on this machine for the files that the kubelet gives to containers.
        claims: a claim's name -> its volume.
        started: the containers so far.
    """

    bench: Workbench
    network: str
    folder: Path
    claims: dict[str, str] = field(default_factory=dict)
    started: list[Container] = field(default_factory=list)

    def start(self, pod: Template) -> Container:
        """Start a pod's container. All volumes except claims are new."""
        spec, container = pod.spec, pod.container
        assert set(spec) <= OF_POD, set(spec) - OF_POD
        assert set(container) <= OF_CONTAINER, set(container) - OF_CONTAINER
        name = self.bench.new_name(f"pod-{pod.name}")
        folder = self.folder / name
        folder.mkdir()
        options = {
            **self._names(pod),
            **_security(spec.get("securityContext", {}) | container.get("securityContext", {})),
            **_limits(container.get("resources", {}).get("limits", {})),
            **self._volumes(pod, folder),
        }
        started = self.bench.start(
            *map(_expanded, container.get("args", [])),
            image=container["image"],
            name=name,
            environment=_variables(pod),
            stop_signal="SIGTERM",
            **options,
        )
        self.started.append(started)
        return started

    def _names(self, pod: Template) -> dict[str, Any]:
        domain = pod.spec.get("subdomain")
        names = [f"{pod.name}.{domain}", f"{pod.name}.{domain}.{NAMESPACE}"] if domain else []
        names += pod.aliases
        found = self.bench.client.api.create_endpoint_config(aliases=names)
        return {
            "hostname": pod.name,
            "network": self.network,
            "networking_config": {self.network: found},
        }

    def _volumes(self, pod: Template, folder: Path) -> dict[str, Any]:
        """Return the mounts: claims, empty folders, and the kubelet's own files."""
        group = pod.spec.get("securityContext", {}).get("fsGroup")
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        (folder / "hosts").write_text(HOSTS)
        (folder / "log").touch()
        (folder / "log").chmod(0o666)
        binds = [f"{folder}/hosts:/etc/hosts", f"{folder}/log:{TERMINATION_LOG}"]
        tmpfs = {}
        for mount in pod.container.get("volumeMounts", []):
            assert set(mount) == {"name", "mountPath"}, mount
            volume = dict(volumes.pop(mount["name"]))
            del volume["name"]
            ((kind, given),) = volume.items()
            if kind == "persistentVolumeClaim":
                binds.append(f"{self._claim(given['claimName'], group)}:{mount['mountPath']}")
            else:
                assert kind == "emptyDir", volume
                tmpfs[mount["mountPath"]] = _empty_folder(given, group)
        assert not volumes, f"not mounted: {volumes}"
        return {"volumes": binds, "tmpfs": tmpfs, "mounts": as_mounts(self.bench.packages)}

    def _claim(self, name: str, group: int | None) -> str:
        """Return the claim's volume. It belongs to root until the kubelet gives it to a group."""
        if name not in self.claims:
            volume = self.bench.client.volumes.create(self.bench.new_name(f"claim-{name}"))
            self.claims[name] = str(volume.name)
            mode = "chmod 755 /it" if group is None else f"chgrp {group} /it; chmod 2775 /it"
            made = run_and_remove(
                self.bench,
                *("sh", "-ec", f"chown 0:0 /it; {mode}"),
                entrypoint="",
                user="0:0",
                volumes=[f"{volume.name}:/it"],
            )
            assert made.code == 0, made.err
        return self.claims[name]

    def message(self, container: Container) -> str:
        """Return the content of `terminated.message`: the first 4,096 bytes of the file."""
        return (self.folder / str(container.name) / "log").read_bytes()[:4096].decode()

    def read(self, container: Container, path: str) -> bytes:
        """Return a file of a container or of its volumes, even if the container has ended."""
        chunks, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            (member,) = archive.getmembers()
            file = archive.extractfile(member)
            assert file is not None
            return file.read()

    def result(self, container: Container, run_dir: str, index: int) -> dict[str, Any]:
        """Return a worker's result.json."""
        found: dict[str, Any] = json.loads(
            self.read(container, f"{run_dir}/worker-{index}/result.json")
        )
        return found


@contextmanager
def make_pods(bench: Workbench, folder: Path) -> Iterator[Pods]:
    """Make a namespace, and remove its contents at the end."""
    network = bench.client.networks.create(bench.new_name("network"), internal=True)
    pods = Pods(bench, network.name, folder)
    try:
        yield pods
    finally:
        for container in pods.started:
            container.remove(force=True, v=True)
        network.remove()
        for name in pods.claims.values():
            bench.client.volumes.get(name).remove()


def evict(container: Container, pod: Template) -> None:
    """End a pod like an eviction: with SIGTERM, and with SIGKILL after its grace period."""
    container.stop(timeout=pod.grace_seconds)


def probe(container: Container, pod: Template, kind: str) -> bool:
    """Run a probe of the pod once; return whether it succeeded."""
    code, _ = container.exec_run(pod.container[kind]["exec"]["command"])
    return bool(code == 0)


def _variables(pod: Template) -> dict[str, str]:
    """Return the variables. The manifest's variables override all others."""
    given = pod.container.get("env", [])
    assert all(set(entry) == {"name", "value"} for entry in given), given
    assert pod.spec.get("enableServiceLinks") is False
    own = {entry["name"]: _expanded(entry["value"]) for entry in given}
    return {**OF_EVERY_POD, **pod.variables, **own}


def _expanded(text: str) -> str:
    """Return a value as the kubelet passes it on. A reference to a variable is an error."""
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", text), f"refers to a variable: {shlex.quote(text)}"
    return text.replace("$$", "$")


def _security(given: Manifest) -> dict[str, Any]:
    assert set(given) <= OF_SECURITY, set(given) - OF_SECURITY
    options: dict[str, Any] = {"read_only": given.get("readOnlyRootFilesystem", False)}
    # Without a user in the manifest, the image's own user applies. With a user, a group is given.
    options["user"] = f"{given['runAsUser']}:{given['runAsGroup']}" if "runAsUser" in given else ""
    if given.get("runAsNonRoot"):
        assert given.get("runAsUser", 0) != 0
    if "fsGroup" in given:
        options["group_add"] = [str(given["fsGroup"])]
    options["cap_drop"] = given.get("capabilities", {}).get("drop", [])
    if given.get("allowPrivilegeEscalation") is False:
        options["security_opt"] = ["no-new-privileges:true"]
    return options


def _limits(given: Manifest) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "memory" in given:
        options["mem_limit"] = _bytes(given["memory"])
        options["memswap_limit"] = options["mem_limit"]
    if "cpu" in given:
        options["nano_cpus"] = int(float(given["cpu"]) * 1e9)
    assert set(given) <= {"memory", "cpu"}, given
    return options


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"([0-9]+)([A-Z]i)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def _empty_folder(given: Manifest, group: int | None) -> str:
    """Return the options of a tmpfs for an emptyDir, which has mode 0777 and the pod's group."""
    options = ["exec", "mode=2777" if group is not None else "mode=0777"]
    if group is not None:
        options.append(f"gid={group}")
    if "sizeLimit" in given:
        options.append(f"size={_bytes(given['sizeLimit'])}")
    return ",".join(options)

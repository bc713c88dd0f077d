"""Starts the output of `export sagemaker`, `vertex` and `skypilot` as these services document.

Variables, files, folders and names come from the documents that entrypoint/sources names. Volumes
stand in for buckets. docs/how-to/schedulers.md lists the checks that need the services themselves.
"""

import ipaddress
import json
import subprocess

import pytest
import yaml
from docker.types import IPAMConfig, IPAMPool

from harness.ended import run_and_remove, wait_for_end
from harness.packages import as_mounts
from harness.waiting import logs_of

pytestmark = pytest.mark.long

LIMIT_SECONDS = 150
SETTINGS = ("--env", "TRAINER_THREADS=1", "--env", "VERBOSE=1", "--", "--epochs", "2")
SUBNET = ipaddress.ip_network("10.231.77.0/29")
# Stands in for a node's docker: it only prints its arguments.
SHOW_CALL = 'docker() { printf "%s\\0" "$@"; }\nid() { echo 0; }\n'


@pytest.fixture
def exported(workbench):
    def run(kind, storage):
        options = ("--image", workbench.image, "--storage", storage)
        printed = run_and_remove(workbench, "export", kind, *options, *SETTINGS)
        assert printed.code == 0, printed.err
        return yaml.safe_load(printed.out)

    return run


@pytest.fixture
def bucket(workbench):
    """A volume in place of a bucket. Its folders belong to root."""
    volume = workbench.client.volumes.create(workbench.new_name("bucket"))
    yield volume.name
    volume.remove()


@pytest.fixture
def network(workbench):
    pools = [IPAMPool(subnet=str(SUBNET))]
    created = workbench.client.networks.create(
        workbench.new_name("network"), internal=True, ipam=IPAMConfig(pool_configs=pools)
    )
    yield created.name
    created.remove()


@pytest.fixture
def start(workbench, network, bucket):
    """Start a container with names in the network, and with the bucket mounted at a folder."""
    started = []

    def run(command, *, bucket_at, names=(), address=None, volumes=(), **options):
        found = workbench.client.api.create_endpoint_config(aliases=names, ipv4_address=address)
        started.append(
            workbench.start(
                *command,
                network=network,
                networking_config={network: found},
                mounts=as_mounts(workbench.packages),
                volumes=[*volumes, f"{bucket}:{bucket_at}"],
                **options,
            )
        )
        return started[-1]

    yield run
    for container in started:
        container.remove(force=True, v=True)


@pytest.fixture
def files_in(workbench):
    def run(volume):
        ended = run_and_remove(
            workbench,
            *("find", "/it", "-type", "f", "-printf", "%P\\n"),
            entrypoint="",
            user="0:0",
            volumes=[f"{volume}:/it"],
        )
        assert ended.code == 0, ended.err
        return set(ended.out.splitlines())

    return run


def all_succeed(containers):
    for container in containers:
        assert wait_for_end(container, LIMIT_SECONDS).code == 0, logs_of(container)


def test_sagemaker_trains_and_keeps_checkpoints(workbench, exported, start, bucket, tmp_path):
    """The image runs as root, as the exported file's header asks."""
    request = exported("sagemaker", "s3://bucket")
    hosts = [f"algo-{number + 1}" for number in range(request["ResourceConfig"]["InstanceCount"])]
    containers = []
    for host in hosts:
        folder = tmp_path / host
        for name in ("input/config", "model", "output/data"):
            (folder / name).mkdir(parents=True)
        resources = {"current_host": host, "hosts": hosts, "network_interface_name": "eth0"}
        files = {"resourceconfig": resources, "hyperparameters": {}, "inputdataconfig": {}}
        for name, content in files.items():
            (folder / f"input/config/{name}.json").write_text(json.dumps(content))
        containers.append(
            start(
                request["AlgorithmSpecification"]["ContainerArguments"],
                names=[host],
                hostname=host,
                user="0:0",
                environment={"TRAINING_JOB_NAME": "train-1", **request["Environment"]},
                volumes=[f"{folder}:/opt/ml"],
                bucket_at=request["CheckpointConfig"]["LocalPath"],
            )
        )
    all_succeed(containers)
    # Root owns the results, so the user who runs the tests may be unable to remove them.
    cleared = run_and_remove(
        workbench,
        *("sh", "-c", "find /all /bucket -name model.keras -o -name result.json; rm -rf /all/*"),
        entrypoint="",
        user="0:0",
        volumes=[f"{tmp_path}:/all", f"{bucket}:/bucket"],
    )
    results = {f"/bucket/worker-{index}/result.json" for index in range(2)}
    assert set(cleared.out.splitlines()) == {"/all/algo-1/model/model.keras", *results}


def test_vertex_trains_into_its_bucket(exported, start, bucket, files_in):
    config = exported("vertex", "gs://bucket")
    prefix = config["baseOutputDirectory"]["outputUriPrefix"]
    pools = config["workerPoolSpecs"]
    names = [
        [f"cmle-training-workerpool{pool}-0a1b-{i}" for i in range(spec["replicaCount"])]
        for pool, spec in enumerate(pools)
    ]
    cluster = {f"workerpool{n}": [f"{one}:2222" for one in pool] for n, pool in enumerate(names)}
    as_tensorflow = {"chief": cluster["workerpool0"], "worker": cluster["workerpool1"]}
    containers = []
    for pool, spec in enumerate(pools):
        for index, name in enumerate(names[pool]):
            task = {"type": f"workerpool{pool}", "index": index}
            of_tensorflow = {"type": ("chief", "worker")[pool], "index": index}
            given = {
                "CLUSTER_SPEC": json.dumps(
                    {"cluster": cluster, "environment": "cloud", "task": task, "job": "{}"}
                ),
                "TF_CONFIG": json.dumps(
                    {"cluster": as_tensorflow, "environment": "cloud", "task": of_tensorflow}
                ),
                "AIP_MODEL_DIR": f"{prefix}/model/",
                "AIP_CHECKPOINT_DIR": f"{prefix}/checkpoints/",
                "AIP_TENSORBOARD_LOG_DIR": f"{prefix}/logs/",
            }
            container = spec["containerSpec"]
            variables = {entry["name"]: entry["value"] for entry in container["env"]}
            containers.append(
                start(
                    container["args"],
                    names=[name],
                    hostname=name,
                    user="0:0",
                    environment=given | variables,
                    bucket_at="/gcs/bucket",
                )
            )
    all_succeed(containers)
    files = files_in(bucket)
    assert "train/model/model.keras" in files
    assert {
        "train/checkpoints/chief-0/result.json",
        "train/checkpoints/worker-0/result.json",
    } <= files


def test_skypilots_run_starts_a_container_on_each_node(exported, start, bucket, files_in):
    task = exported("skypilot", "bucket")
    called = subprocess.run(
        ["bash", "-c", SHOW_CALL + task["run"]], capture_output=True, text=True, check=True
    )
    words = called.stdout.split("\0")[:-1]
    image_at = words.index(next(word for word in words if word.startswith("cluster-trainer:")))
    options, command = words[:image_at], words[image_at + 1 :]
    variables = [options[at + 1] for at, word in enumerate(options) if word == "--env"]
    assert {"run", "--rm", "--read-only"} <= set(options)
    assert options[options.index("--network") + 1] == "host"
    assert options[options.index("--volume") + 1] == "/outputs:/runs"
    _, _, *addresses = map(str, SUBNET.hosts())
    addresses = addresses[: task["num_nodes"]]
    containers = []
    for rank, address in enumerate(addresses):
        given = {
            "SKYPILOT_NODE_IPS": "\n".join(addresses),
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NUM_NODES": str(len(addresses)),
            "SKYPILOT_NUM_GPUS_PER_NODE": "0",
            "SKYPILOT_TASK_ID": "sky-2026-01-01-00-00-00-000000_train_1",
        }
        assert set(given) <= set(variables)
        fixed = dict(variable.split("=", 1) for variable in variables if "=" in variable)
        containers.append(
            start(
                command,
                address=address,
                user="0:0",
                environment=given | fixed,
                read_only=True,
                tmpfs={"/tmp": ""},
                cap_drop=["ALL"],
                bucket_at="/runs",
            )
        )
    all_succeed(containers)
    assert "train/worker-0/model.keras" in files_in(bucket)

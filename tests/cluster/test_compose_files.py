"""The compose files as data: every worker's rights, settings and devices."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from harness.compose import CLUSTER, FOLDER, ROOT, Compose, cluster_environ
from harness.ended import run_and_remove

BRIDGE = (CLUSTER,)
HOST = (CLUSTER, FOLDER / "host-network.yaml")
GPU = FOLDER / "gpu.yaml"
NETWORKS = pytest.mark.parametrize("files", [BRIDGE, HOST], ids=["bridge", "host"])


@pytest.fixture(scope="module")
def services(workbench):
    def of(files, workers=2, **environ):
        variables = cluster_environ(workers) | environ
        project = Compose(workbench.new_name("config"), variables, tuple(files))
        return json.loads(project.run("config", "--format", "json"))["services"]

    return of


@pytest.fixture(scope="module")
def workers(services):
    def of(files, workers=2, **environ):
        found = services(files, workers, **environ)
        return {name: service for name, service in found.items() if name.startswith("worker-")}

    return of


@NETWORKS
def test_no_worker_has_more_rights_than_it_needs(workers, files):
    for worker in workers(files).values():
        assert worker["read_only"] is True
        assert worker["cap_drop"] == ["ALL"]
        assert worker["security_opt"] == ["no-new-privileges:true"]
        assert all("size=" in mount for mount in worker["tmpfs"])
        assert worker["restart"] == "no"
        assert worker["stop_grace_period"] == "10s"


def test_what_runs_before_the_workers_may_make_folders_for_anybody_and_no_more(services):
    first = services(BRIDGE)["run-folder"]
    assert (first["cap_drop"], first["cap_add"]) == (["ALL"], ["CHOWN", "DAC_OVERRIDE"])
    assert first["network_mode"] == "none"
    writable = [mount["target"] for mount in first["volumes"] if not mount.get("read_only")]
    assert writable == ["/runs"]


def test_every_worker_knows_its_place(workers):
    found = workers(BRIDGE, workers=8)
    assert sorted(found) == [f"worker-{index}" for index in range(8)]
    places = [found[f"worker-{index}"]["environment"] for index in range(8)]
    assert [place["WORKER_INDEX"] for place in places] == [str(index) for index in range(8)]
    hosts = ",".join(f"worker-{index}" for index in range(8))
    assert {place["WORKER_HOSTS"] for place in places} == {hosts}


def test_two_workers_are_the_default(workbench):
    project = Compose(workbench.new_name("config"), {})
    assert sorted(project.run("config", "--services").split()) == [
        "run-folder",
        "worker-0",
        "worker-1",
    ]


def test_workers_on_the_hosts_network_have_the_tutorials_addresses(workers):
    found = workers(HOST)
    assert {worker["network_mode"] for worker in found.values()} == {"host"}
    hosts = {worker["environment"]["WORKER_HOSTS"] for worker in found.values()}
    assert hosts == {"localhost:20000,localhost:20001"}


@NETWORKS
def test_gpu_overlay_gives_each_worker_a_gpu_and_memory_for_nccl(workers, files):
    found = workers([*files, GPU])
    assert sorted(found) == ["worker-0", "worker-1"]
    for index in range(2):
        worker = found[f"worker-{index}"]
        (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["device_ids"]) == ("nvidia", [str(index)])
        assert int(worker["shm_size"]) == 1024**3


def test_gpu_overlay_builds_and_runs_the_gpu_image(services):
    found = services([CLUSTER, GPU], IMAGE="")
    assert found["run-folder"]["build"]["args"]["ACCELERATOR"] == "gpu"
    assert {service["image"] for service in found.values()} == {"cluster-trainer:gpu"}


def test_the_image_that_compose_builds_has_the_projects_version(services):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert services(BRIDGE)["run-folder"]["build"]["args"]["VERSION"] == project["version"]


@pytest.fixture(scope="module")
def settings(workbench):
    """Every variable of the image's trainer, with a distinct value."""
    help_text = run_and_remove(workbench, "--help").out
    flags = re.findall(r"^ +--([a-z-]+)", help_text, re.MULTILINE)
    names = {"TRAINER_" + flag.upper().replace("-", "_") for flag in flags}
    assert "TRAINER_EPOCHS" in names
    # The files set these two to the places where they mount data and results.
    return {name: f"of {name}" for name in names - {"TRAINER_DATA_DIR", "TRAINER_RUN_DIR"}}


@NETWORKS
def test_every_setting_of_the_trainer_goes_through(workers, settings, files):
    for worker in workers(files, **settings).values():
        assert settings.items() <= worker["environment"].items()


def test_every_setting_of_the_trainer_goes_through_to_a_swarm(settings):
    command = ["docker", "stack", "config", "--compose-file", str(FOLDER / "swarm.yaml")]
    environ = os.environ | settings
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [name for name in settings if f"{name}: of {name}" not in done.stdout] == []


def test_tensorboard_reads_the_runs_and_is_open_to_this_machine_only(workbench):
    project = Compose(workbench.new_name("config"), {"TENSORBOARD_PORT": "7007"})
    told = project.run("--profile", "tensorboard", "config", "--format", "json")
    found = json.loads(told)["services"]
    board, worker = found["tensorboard"], found["worker-0"]
    (port,) = board["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "7007", 6006)
    (mount,) = board["volumes"]
    assert (Path(mount["source"]).name, mount["target"], mount["read_only"]) == (
        *("runs", "/runs", True),
    )
    assert (board["read_only"], board["cap_drop"]) == (True, ["ALL"])
    assert board["security_opt"] == ["no-new-privileges:true"]
    assert board["network_mode"] == "bridge"
    assert board["image"] == worker["image"]
    assert worker["environment"]["WORKER_HOSTS"] == "worker-0,worker-1"

"""The compose files as data: what every worker is given, and what it is not."""

import json
import re
from pathlib import Path

import pytest

from harness.compose import FOLDER, Compose, cluster_environ
from harness.ended import run_and_remove

FILES = ("local.yaml", "host-network.yaml")


@pytest.fixture(scope="module")
def services(workbench):
    def of(*names, workers=2):
        files = tuple(FOLDER / name for name in names)
        project = Compose(workbench.new_name("config"), cluster_environ(workers), files)
        return json.loads(project.run("config", "--format", "json"))["services"]

    return of


@pytest.mark.parametrize("file", FILES)
def test_no_worker_has_more_rights_than_it_needs(services, file):
    for worker in services(file).values():
        assert worker["read_only"] is True
        assert worker["cap_drop"] == ["ALL"]
        assert worker["security_opt"] == ["no-new-privileges:true"]
        assert all("size=" in mount for mount in worker["tmpfs"])
        assert worker["restart"] == "no"
        assert worker["stop_grace_period"] == "10s"


def test_every_worker_knows_its_place(services):
    found = services("local.yaml", workers=8)
    assert sorted(found) == [f"worker-{index}" for index in range(8)]
    indices = [found[f"worker-{index}"]["environment"]["WORKER_INDEX"] for index in range(8)]
    assert indices == [str(index) for index in range(8)]


def test_two_workers_are_the_default(workbench):
    project = Compose(workbench.new_name("config"), {})
    assert sorted(project.run("config", "--services").split()) == ["worker-0", "worker-1"]


def test_workers_on_the_hosts_network_have_the_tutorials_addresses(services):
    found = services("host-network.yaml")
    assert {worker["network_mode"] for worker in found.values()} == {"host"}
    hosts = {worker["environment"]["WORKER_HOSTS"] for worker in found.values()}
    assert hosts == {"localhost:20000,localhost:20001"}


@pytest.mark.parametrize("file", FILES)
def test_gpu_overlay_gives_each_worker_a_gpu_and_memory_for_nccl(services, file):
    found = services(file, "gpu.yaml")
    assert sorted(found) == ["worker-0", "worker-1"]
    for index in range(2):
        worker = found[f"worker-{index}"]
        (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["device_ids"]) == ("nvidia", [str(index)])
        assert int(worker["shm_size"]) == 1024**3


def test_every_setting_of_the_trainer_goes_through(services, workbench):
    help_text = run_and_remove(workbench, "--help").out
    flags = re.findall(r"^ +--([a-z-]+)", help_text, re.MULTILINE)
    settings = {"TRAINER_" + flag.upper().replace("-", "_") for flag in flags}
    assert "TRAINER_EPOCHS" in settings
    # The data directory is where the files mount it.
    passed = set(services("local.yaml")["worker-0"]["environment"]) | {"TRAINER_DATA_DIR"}
    assert settings - passed == set()


def test_tensorboard_reads_the_runs_and_is_open_to_this_machine_only(services):
    board = services("tensorboard.yaml")["tensorboard"]
    assert {port["host_ip"] for port in board["ports"]} == {"127.0.0.1"}
    (mount,) = (mount for mount in board["volumes"] if mount["target"] == "/runs")
    assert mount["read_only"] is True
    assert Path(mount["source"]).name == "runs"

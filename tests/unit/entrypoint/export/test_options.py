"""The options of `export`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from entrypoint.__main__ import main
from entrypoint.export.export import KINDS

STORAGE = {"sagemaker": "s3://bucket", "vertex": "gs://bucket", "skypilot": "bucket"}
"""The kinds that need a place for the results, and a place that each accepts."""


def test_all_problems_are_shown_at_once(refused):
    message = refused(
        *("kubernets", "--workers", "0", "--gpus=x", "--name", "Train_1", "--image", "a b"),
        *("--env", "1A=b", "--env", "WORKER_INDEX=1", "--colour", "--storage"),
    )
    for received in ("kubernets", "0", "x", "Train_1", "a b", "1A", "--colour"):
        assert f'"{received}"' in message
    assert "--env WORKER_INDEX" in message
    assert "--storage: received nothing" in message


@pytest.mark.parametrize(
    "options",
    [
        ("kubernetes", "--storage", "/runs"),
        ("slurm", "--storage", "10Gi"),
        ("compose", "--storage", "/a:/b"),
        ("swarm", "--env", "A"),
        ("slurm", "--env", "A=\udcff"),
        ("slurm", "--", "\udcff"),
        ("slurm", "--name", "x\n#SBATCH --wrap"),
        ("slurm", "--image", "--privileged"),
        (),
    ],
)
def test_unsuitable_values_are_refused(refused, options):
    assert "1 problem" in refused(*options)


def test_a_refusal_does_not_show_what_may_be_secret(refused):
    assert "hunter2" not in refused("slurm", "--env", "API-KEY=hunter2")
    assert "hunter2" not in refused("slurm", "--env", "API_TOKEN=hunter2\udcff")


@pytest.mark.parametrize("kind", KINDS)
def test_the_header_says_how_to_apply_the_file(exported, kind):
    storage = ("--storage", STORAGE[kind]) if kind in STORAGE else ()
    header = exported(kind, "--workers", "3", *storage)
    command = {
        **dict.fromkeys(("kubernetes", "jobset", "trainjob", "tfjob"), "kubectl apply"),
        "slurm": "sbatch",
        "compose": "docker compose",
        "swarm": "docker stack deploy",
        "sagemaker": "aws sagemaker create-training-job",
        "vertex": "gcloud ai custom-jobs create",
        "skypilot": "sky launch",
    }[kind]
    lines = header.splitlines()
    assert any(line.startswith(f"#   {command}") for line in lines[:6])
    assert "3 workers" in "".join(lines[:2])


@pytest.mark.parametrize("kind", ["kubernetes", "jobset", "trainjob", "tfjob"])
def test_the_header_says_that_a_job_is_deleted_before_it_is_applied_again(exported, kind):
    header = [line for line in exported(kind).splitlines() if line.startswith("#")]
    (deletes,) = [line for line in header if "before you apply the file again" in line]
    assert deletes.startswith("#   kubectl delete ")
    assert any("Applying it alone changes nothing" in line for line in header)


@pytest.mark.parametrize(("gpus", "is_said"), [("1", True), ("0", False)])
def test_swarms_header_says_how_nodes_advertise_gpus(exported, gpus, is_said):
    text = exported("swarm", "--gpus", gpus)
    header = "".join(line for line in text.splitlines() if line.startswith("#"))
    assert ('"node-generic-resources": ["NVIDIA-GPU=' in header) is is_said


def test_the_image_has_the_command(capfd):
    assert main(["export", "kubernetes"], {}, Path()) == 0
    assert "kind: Job" in capfd.readouterr().out


def test_workers_of_one_machine_share_no_gpu(exported):
    services = yaml.safe_load(exported("compose", "--workers", "3", "--gpus", "2"))["services"]
    ids = [
        number
        for service in services.values()
        for device in service["deploy"]["resources"]["reservations"]["devices"]
        for number in device["device_ids"]
    ]
    assert ids == ["0", "1", "2", "3", "4", "5"]
    assert [service["environment"]["WORKER_INDEX"] for service in services.values()] == [*"012"]


def test_swarm_starts_a_replica_for_each_host(exported):
    worker = yaml.safe_load(exported("swarm", "--workers", "3", "--gpus", "1"))["services"][
        "worker"
    ]
    assert worker["deploy"]["replicas"] == 3
    assert worker["environment"]["WORKER_HOSTS"] == "slot-1,slot-2,slot-3"
    # Swarm publishes a replica's name after its first check.
    assert worker["healthcheck"] == {"interval": "10s", "retries": 9}
    assert worker["deploy"]["resources"]["reservations"]["generic_resources"]


@pytest.mark.parametrize("kind", ["compose", "swarm"])
def test_a_folder_is_mounted_in_place_of_the_volume(exported, kind):
    services = yaml.safe_load(exported(kind, "--storage", "/mnt/my $runs"))["services"]
    mounts = next(iter(services.values()))["volumes"]
    assert mounts[0] == {"type": "bind", "source": "/mnt/my $$runs", "target": "/runs"}


def test_slurm_gets_a_node_for_each_worker(exported):
    lines = exported("slurm", "--workers", "3", "--gpus", "2").splitlines()
    assert {"#SBATCH --nodes=3", "#SBATCH --gpus-per-node=2"} <= set(lines)

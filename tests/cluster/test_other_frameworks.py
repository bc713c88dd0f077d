"""JAX and PyTorch behind the gate: they train, meet a killed process again, and end as told."""

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from harness.cluster import STOP
from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_for_text
from harness.wheels import install_packages

PROGRAMS = Path(__file__).with_name("frameworks")
TORCH = """FROM {image}
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends python3-torch \
    && rm -rf /var/lib/apt/lists/*
USER 1000:1000
"""
# Kills the command's own process. In the entrypoint's command line, other words come first.
KILL = """
import os, pathlib, signal
lines = pathlib.Path("/proc").glob("[0-9]*/cmdline")
(pid,) = [one.parent.name for one in lines if b"\\0/programs/" in one.read_bytes()[:40]]
os.kill(int(pid), signal.SIGKILL)
"""
# Both containers start within it, on a busy machine, too.
BOUND = {"RENDEZVOUS_TIMEOUT": "20"}
STOP_SECONDS, END_SECONDS = 20, 120

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def jax():
    """The folder with JAX, for the image's Python."""
    return install_packages("jax")


@pytest.fixture(scope="module")
def torch_image(workbench):
    """The image with Debian's PyTorch, for Debian's own Python."""
    tag = f"{workbench.prefix}-torch"
    file = BytesIO(TORCH.format(image=workbench.image).encode())
    workbench.client.images.build(fileobj=file, tag=tag, rm=True)
    yield tag
    workbench.client.images.remove(tag, force=True)


@dataclass(frozen=True)
class Framework:
    """How a worker runs a program of a framework: its command, image, mounts and variables."""

    command: tuple[str, ...]
    image: str
    volumes: list[str]
    variables: dict[str, str]


@pytest.fixture(params=["jax", "torch"])
def framework(request, workbench):
    volumes, variables = [f"{PROGRAMS}:/programs:ro"], {"OMP_NUM_THREADS": "1"}
    if request.param == "torch":
        image = request.getfixturevalue("torch_image")
        return Framework(("/usr/bin/python3", "/programs/in_torch.py"), image, volumes, variables)
    volumes.append(f"{request.getfixturevalue('jax')}:/opt/jax:ro")
    variables |= {"PYTHONPATH": "/opt/jax", "JAX_PLATFORMS": "cpu"}
    command = ("python", "/programs/in_jax.py")
    return Framework(command, workbench.image, volumes, variables)


@pytest.fixture
def launch(framework, peers, workbench):
    """Start one of two workers, with a program of the framework as its command."""
    cluster = peers(2)
    options = {"volumes": framework.volumes, **framework.variables}
    if framework.image != workbench.image:
        options["image"] = framework.image
    return lambda index, **more: cluster.start(index, *framework.command, **options, **more)


@pytest.fixture
def up(framework, start, tmp_path):
    """Start `up` with two workers whose command is a program of the framework."""

    def run(**variables):
        worker = {
            "command": framework.command,
            "volumes": framework.volumes,
            "environment": framework.variables | variables,
        }
        overlay = tmp_path / "framework.yaml"
        overlay.write_text(json.dumps({"services": {"worker-0": worker, "worker-1": worker}}))
        return start(WORKERS=2, IMAGE=framework.image, OVERLAYS=overlay)

    return run


def assert_trained(ended):
    assert [one.code for one in ended] == [0, 0], ended
    expected = [f"trained rank {rank} of 2: 3.0000" for rank in range(2)]
    assert [one.out.splitlines()[-1] for one in ended] == expected, ended


def assert_ends_without_the_other(worker):
    """Check that worker 0 waits for worker 1 again, and then says that it is missing."""
    ended = wait_for_end(worker)
    assert ended.code == 75, ended
    assert "worker-1" in ended.err.splitlines()[-1], ended


def test_two_workers_train_by_the_variables_alone(launch):
    workers = [launch(index, ENDS="1") for index in range(2)]
    assert_trained([wait_for_end(one) for one in workers])


def test_a_killed_process_is_met_again(launch):
    workers = [launch(index) for index in range(2)]
    for one in workers:
        wait_for_text(one, "step 20")
    assert workers[1].exec_run(["python3", "-c", KILL]).exit_code == 0
    ended = [wait_for_end(one) for one in workers]
    assert_trained(ended)
    assert all("restart" in one.err for one in ended), ended


def test_a_missing_peer_is_named(launch):
    alone = launch(0, ENDS="1", RENDEZVOUS_TIMEOUT="6")
    ended = wait_for_end(alone)
    assert ended.code == 75, ended
    assert "worker-1" in ended.err, ended
    assert "trained" not in logs_of(alone)


def test_a_worker_that_exits_with_78_is_not_restarted_and_the_other_names_it(launch):
    other, wrong = [launch(index, EXITS="78", **BOUND) for index in range(2)]
    ended = wait_for_end(wrong)
    assert (ended.code, "restart 1 of" in ended.err) == (78, False), ended
    assert_ends_without_the_other(other)


def test_a_worker_that_is_stopped_exits_with_143_and_the_other_names_it(launch):
    workers = [launch(index, **BOUND) for index in range(2)]
    for one in workers:
        wait_for_text(one, "step 20")
    workers[1].stop(timeout=STOP_SECONDS)
    ended = wait_for_end(workers[1])
    assert (ended.code, "stopped by SIGTERM" in ended.err) == (143, True), ended
    assert_ends_without_the_other(workers[0])


def test_up_ends_with_the_78_of_a_worker_and_names_it(up):
    ended = up(EXITS="78").end(END_SECONDS)
    assert ended.code == 78, ended.output
    assert "worker-1 ended first, with exit code 78" in ended.output


def test_up_ends_with_143_when_all_workers_are_stopped(up):
    cluster = up()
    for index in range(2):
        cluster.wait_for_text(f"worker-{index} | step 20", END_SECONDS)
    asked = cluster.ask(STOP)
    assert asked.returncode == 0, asked
    ended = cluster.end(END_SECONDS)
    assert ended.code == 143, ended.output
    told = [line for line in ended.output.splitlines() if "stopped by SIGTERM" in line]
    assert {line.split(" | ")[0] for line in told} == {"worker-0", "worker-1"}, ended.output

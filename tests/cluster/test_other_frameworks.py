"""JAX and PyTorch behind the gate: they train, and meet a killed process again."""

from io import BytesIO
from pathlib import Path

import pytest

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


@pytest.fixture(params=["jax", "torch"])
def begin(request, peers):
    """Start one of two workers, with a program of the framework as its command."""
    mounted = {str(PROGRAMS): {"bind": "/programs", "mode": "ro"}}
    options = {"OMP_NUM_THREADS": "1"}
    if request.param == "jax":
        mounted[str(request.getfixturevalue("jax"))] = {"bind": "/opt/jax", "mode": "ro"}
        command = ("python", "/programs/in_jax.py")
        options |= {"PYTHONPATH": "/opt/jax", "JAX_PLATFORMS": "cpu"}
    else:
        command = ("/usr/bin/python3", "/programs/in_torch.py")
        options |= {"image": request.getfixturevalue("torch_image")}
    cluster = peers(2)
    return lambda index, **more: cluster.start(index, *command, volumes=mounted, **options, **more)


def assert_trained(ended):
    assert [one.code for one in ended] == [0, 0], ended
    expected = [f"trained rank {rank} of 2: 3.0000" for rank in range(2)]
    assert [one.out.splitlines()[-1] for one in ended] == expected, ended


def test_two_workers_train_by_the_variables_alone(begin):
    workers = [begin(index, ENDS="1") for index in range(2)]
    assert_trained([wait_for_end(one) for one in workers])


def test_a_killed_process_is_met_again(begin):
    workers = [begin(index) for index in range(2)]
    for one in workers:
        wait_for_text(one, "step 20")
    assert workers[1].exec_run(["python3", "-c", KILL]).exit_code == 0
    ended = [wait_for_end(one) for one in workers]
    assert_trained(ended)
    assert all("restart" in one.err for one in ended), ended


def test_a_missing_peer_is_named(begin):
    alone = begin(0, ENDS="1", RENDEZVOUS_TIMEOUT="6")
    ended = wait_for_end(alone)
    assert ended.code == 75, ended
    assert "worker-1" in ended.err, ended
    assert "trained" not in logs_of(alone)

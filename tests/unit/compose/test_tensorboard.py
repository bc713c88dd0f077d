"""The start of `tensorboard`, and the settings it refuses. The docker command is a script here."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[3] / "compose/cluster.py"


@pytest.fixture
def start(tmp_path):
    """Run `tensorboard` with a docker that prints its arguments."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "docker $*"\n')
    docker.chmod(0o755)
    (tmp_path / "runs").mkdir()

    def run(**environ):
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNS_DIR": str(tmp_path / "runs")}
        return subprocess.run(
            [sys.executable, PROGRAM, "tensorboard"],
            env=os.environ | path | environ,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def port():
    """A port that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        number = listening.getsockname()[1]
    return str(number)


def test_it_shows_the_runs_to_this_machine_alone_and_says_where(start, tmp_path, port):
    done = start(TENSORBOARD_PORT=port, IMAGE="mine:cpu")
    assert done.returncode == 0, done.stderr
    assert f"TensorBoard of {tmp_path}/runs: http://localhost:{port} " in done.stdout
    command = done.stdout.splitlines()[-1]
    assert f" --publish 127.0.0.1:{port}:6006 " in command
    assert f" --volume {tmp_path}/runs:/runs:ro " in command
    assert " --rm --read-only " in command
    assert " --entrypoint /usr/bin/tini " in command  # no entrypoint: it would report a cluster
    assert command.endswith(" mine:cpu -g -- python -m cluster_trainer.tensorboard_server /runs")


@pytest.mark.parametrize("text", ["0", "seven", "65536", "99999", "-1"])
def test_what_is_no_port_is_refused(start, text):
    done = start(TENSORBOARD_PORT=text)
    assert done.returncode == 78
    assert f'PORT: received "{text}"; accepted: a number from 1 to 65535.' in done.stderr
    assert "docker run" not in done.stdout


def test_a_port_that_is_taken_is_refused(start):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        number = listening.getsockname()[1]
        done = start(TENSORBOARD_PORT=str(number))
    assert done.returncode == 78
    assert f'PORT: received "{number}"; accepted: a port that no other program' in done.stderr
    assert "docker run" not in done.stdout


def test_a_folder_that_is_not_there_is_refused(start, tmp_path):
    done = start(RUNS_DIR=str(tmp_path / "none"))
    assert done.returncode == 78
    assert f'RUNS_DIR: received "{tmp_path}/none"' in done.stderr

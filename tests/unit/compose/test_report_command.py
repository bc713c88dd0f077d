"""The start of `report`, and the settings it refuses. The docker command is a script here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def start(tmp_path):
    """Run `report` on two runs, with its packages and a docker that prints its arguments."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "docker $*"\n')
    docker.chmod(0o755)
    for name in ("first", "second"):
        (tmp_path / f"runs/{name}/worker-0").mkdir(parents=True)
    (tmp_path / "runs/latest").symlink_to("second")
    project = tmp_path / "project"
    project.mkdir()
    (project / "compose").symlink_to(PROJECT / "compose")

    def run(*, has_packages=True, **environ):
        if has_packages:
            (project / ".build/report").mkdir(parents=True, exist_ok=True)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNS_DIR": str(tmp_path / "runs")}
        code = (
            "import sys; from pathlib import Path; "
            "sys.path.insert(0, sys.argv[1]); "
            "from local_cluster.commands import report; "
            "report.PACKAGES = Path(sys.argv[2]); "
            "from local_cluster.main import main; import os; "
            "sys.exit(main(['report'], os.environ, ''))"
        )
        return subprocess.run(
            [sys.executable, "-c", code, PROJECT / "compose", project / ".build/report"],
            env=os.environ | path | environ,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_it_is_about_the_newest_run_and_has_no_network(start, tmp_path):
    done = start(IMAGE="mine:cpu")
    assert done.returncode == 0, done.stderr
    command = done.stdout.splitlines()[-1]
    assert command.endswith(f" mine:cpu -g -- python -m trainer.report {tmp_path}/runs/second")
    assert f" --volume {tmp_path}/runs:{tmp_path}/runs " in command
    assert " --network none " in command


def test_several_runs_can_be_named(start, tmp_path):
    command = start(RUN_NAME="first second").stdout.splitlines()[-1]
    assert command.endswith(f" trainer.report {tmp_path}/runs/first {tmp_path}/runs/second")


@pytest.mark.parametrize("name", ["third", "../runs/first", "-first", "first third"])
def test_a_run_that_is_not_there_is_refused(start, name):
    done = start(RUN_NAME=name)
    assert done.returncode == 78
    assert "; accepted: runs in " in done.stderr
    assert "docker run" not in done.stdout


def test_where_there_is_no_newest_run_nobody_is_said_to_have_named_one(start, tmp_path):
    (tmp_path / "runs/latest").unlink()
    done = start()
    assert done.returncode == 78
    assert "`make up-local` starts one" in done.stderr
    assert "received" not in done.stderr


def test_packages_that_are_missing_are_named(start):
    done = start(has_packages=False)
    assert done.returncode == 78
    assert "`scripts/build.sh report` fetches them" in done.stderr

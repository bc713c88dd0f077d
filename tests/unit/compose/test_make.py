"""make refuses unknown names before it builds, starts or stops anything."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "IMAGE")


@pytest.fixture
def make(tmp_path):
    """Run make with a `docker` that only says that it was called."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "docker was called"\nexit 1\n')
    docker.chmod(0o755)
    kept = {
        name: text
        for name, text in os.environ.items()
        if name not in OF_MAKE and not name.startswith("TRAINER_")
    }

    def run(*arguments, **environ):
        path = {"PATH": f"{tmp_path}:{kept['PATH']}"}
        command = ["make", "--directory", str(REPOSITORY), *arguments]
        return subprocess.run(
            command, env=kept | path | environ, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["up-local", "WORKER=4"], "WORKERS"),
        (["up-local", "EPOCH=3"], "EPOCHS"),
        (["up-local", "TRAINER_EPOCH=3"], "TRAINER_EPOCHS"),
        (["up-local", "GLOBALBATCH=64", "WORKERS=2"], "GLOBAL_BATCH"),
        (["resume", "WORKES=1"], "WORKERS"),
        (["stop", "WORKERS=1"], "WORKER"),
        (["data", "DATASETS=mnist"], "DATASET"),
        (["tensorboard", "PROT=7007"], "PORT"),
        (["up", "HOST=ana@10.0.0.1"], "HOSTS"),
        (["replace", "HOSTS=ana@10.0.0.1"], "HOST"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(make, arguments, meant):
    done = make(*arguments)
    assert done.returncode == 2
    assert f"Did you mean {meant}?" in done.stderr
    assert "docker was called" not in done.stdout


def test_down_takes_no_worker(make):
    done = make("down", "WORKER=1")
    assert (done.returncode, "WORKER: " in done.stderr) == (2, True)
    assert "docker was called" not in done.stdout


def test_a_misspelt_variable_of_the_shell_is_refused(make):
    done = make("up-local", TRAINER_EPOCH="3")
    assert done.returncode == 2
    assert "TRAINER_EPOCH: " in done.stderr
    assert "Did you mean TRAINER_EPOCHS?" in done.stderr


def test_nothing_keeps_a_cluster_from_being_removed(make):
    assert "docker was called" in make("down", TRAINER_EPOCH="3").stdout


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ("EPOCHS=3", "TRAINER_EPOCHS=3"),
        ("BATCH=8", "TRAINER_PER_REPLICA_BATCH_SIZE=8"),
        ("GLOBAL_BATCH=9", "TRAINER_GLOBAL_BATCH_SIZE=9"),
        ("STALL_TIMEOUT_SECONDS=9", "TRAINER_STALL_TIMEOUT_SECONDS=9"),
        ("MODEL=my $(x) 'y'", "TRAINER_MODEL=my  'y'"),
        ("NAME=mine", "RUN_NAME=mine"),
        ("PORT=7007", "TENSORBOARD_PORT=7007"),
    ],
)
def test_what_is_given_becomes_the_variable_behind_it(make, given, variable):
    shown = make("--eval", "shown: ; @env", "shown", given)
    assert variable in shown.stdout.splitlines(), shown.stderr


def test_what_other_targets_take_does_not_reach_the_check(make):
    check = "compose/cluster.py names"
    assert check in make("--dry-run", "up-local", "EPOCHS=3").stdout
    done = make("--dry-run", "lint", "TESTS=a", "PYTEST_ARGS=-k b")
    assert (done.returncode, "ruff check" in done.stdout) == (0, True), done
    assert check not in done.stdout


@pytest.mark.parametrize("command", ["down", "ps", "logs"])
@pytest.mark.parametrize("shell", [{}, {"COMPOSE_FILE": "/theirs/compose.yaml"}])
def test_compose_itself_does_what_needs_nothing_else(make, tmp_path, command, shell):
    """COMPOSE_FILE in the shell may be another project's, which `down` would remove."""
    (tmp_path / "docker").write_text('#!/bin/sh\necho "$@"\n')
    done = make(command, "COMPOSE_PROJECT_NAME=other", **shell)
    own = f"compose --file {REPOSITORY}/compose.yaml --project-name other --profile * {command}"
    assert own in done.stdout, done.stderr


def test_up_needs_hosts(make):
    done = make("up")
    assert (done.returncode, "make up-local" in done.stderr) == (2, True)
    assert "docker was called" not in done.stdout


def test_up_local_is_here_whatever_hosts_the_shell_has(make):
    done = make("--dry-run", "up-local", HOSTS="ana@10.0.0.1")
    assert any(line.startswith("HOSTS= ") for line in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize(("given", "asked"), [([], "status"), (["JSON=1"], "status --json")])
def test_status_takes_a_form(make, given, asked):
    done = make("--dry-run", "status", *given)
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert any(line.endswith(f"compose/cluster.py {asked}") for line in lines), done.stdout


def test_a_port_that_the_shell_has_for_something_else_is_not_tensorboards(make):
    shown = make("--eval", "shown: ; @env", "shown", PORT="8080")
    assert "TENSORBOARD_PORT" not in shown.stdout

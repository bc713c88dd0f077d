"""Only one process of a start at a time joins the other workers."""

import os
import subprocess
import sys

import pytest

from cluster_trainer.on_jax.workers.first_process import JOINED, joins, refuse_second_process
from cluster_trainer.problems import ConfigurationError

JOINING = "import os; from cluster_trainer.on_jax.workers.first_process import joins; "
WAITING = JOINING + "print(joins(os.environ), flush=True); input()"
ONCE = JOINING + "print(joins(os.environ), os.environ['CLUSTER_TRAINER_JAX_PROCESS'])"


@pytest.fixture
def environ(tmp_path):
    given = {name: one for name, one in os.environ.items() if name != JOINED}
    return given | {"START_ID": "a", "END_MARKS": str(tmp_path / "ends")}


@pytest.fixture
def first(environ):
    """The first process of a start; it has joined, and ends at a line on its stdin."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WAITING], env=environ, **pipes) as process:
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def said(environ):
    command = [sys.executable, "-c", ONCE]
    return subprocess.check_output(command, env=environ, text=True).split()


def test_a_second_process_does_not_join_and_names_the_first(first, environ):
    assert said(environ) == ["False", str(first.pid)]


def test_a_process_joins_after_the_first_has_ended(first, environ):
    first.communicate("\n")
    assert said(environ)[0] == "True"


@pytest.mark.usefixtures("first")
def test_a_process_of_another_start_joins(environ):
    assert said(environ | {"START_ID": "b"})[0] == "True"


def test_a_child_of_a_process_that_has_joined_does_not_join():
    assert not joins({JOINED: "1"})


def test_without_an_entrypoint_a_process_joins():
    environ = {"START_ID": "a"}
    assert joins(environ)
    assert environ[JOINED] == str(os.getpid())


def test_a_fit_is_refused_in_a_process_that_has_not_joined():
    refuse_second_process({})
    refuse_second_process({JOINED: str(os.getpid())})
    with pytest.raises(ConfigurationError, match="beside process 1,"):
        refuse_second_process({JOINED: "1"})

"""Machines, an operator, and the commands of a cluster on them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness import fake_machines
from local_cluster.docker_engine import PROJECT, START
from local_cluster.settings import run_record
from local_cluster.settings.given_variables import User
from machines import cluster_record
from machines.cluster_record import Kept
from machines.hosts_setting import parse
from machines.machine import RUN

CLUSTER = Path(__file__).parents[5] / "compose/cluster.py"
NAME = "p"


class World:
    """Machines, an operator, and a cluster of two workers on m1 and m2."""

    def __init__(self, folder):
        self.folder = folder
        self.machines = fake_machines.make(folder / "machines", ["m1", "m2", "m3"])
        self.environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith("TRAINER_")},
            "PATH": f"{folder}/machines/bin:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "RUNS_DIR": str(folder / "runs"),
            "COMPOSE_PROJECT_NAME": NAME,
            "IMAGE": "i",
        }
        self.let_workers_run(is_allowed=False)

    def let_workers_run(self, *, is_allowed=True):
        """Let new workers run, or let them end at once so that `up` ends too."""
        for one in self.machines.values():
            if is_allowed:
                (one.folder / "ends").unlink()
            else:
                (one.folder / "ends").touch()

    def keep(self, hosts="ana@m1 ana@m2", **changes):
        """Write the records of a cluster."""
        those = tuple(parse([hosts]))
        folders = tuple(f"{self.folder}/{one.target[4:]}/cluster-trainer" for one in those)
        known = Kept(NAME, those, "first", self.environ["RUNS_DIR"], folders)
        cluster_record.write(replace(known, **changes), self.environ)
        self.remember(HOSTS="\n".join(one.text for one in those))

    def remember(self, **settings):
        (self.folder / "runs/first").mkdir(parents=True, exist_ok=True)
        (self.folder / "runs/latest").unlink(missing_ok=True)
        (self.folder / "runs/latest").symlink_to("first")
        record = run_record.record_of(self.folder / "runs", "first", self.environ)
        record.remember({"IMAGE": "i", **settings}, User(str(os.getuid()), str(os.getgid())))

    def put(self, machine, index, state="running", run="first", start=""):
        labels = {PROJECT: NAME, RUN: run, **({START: start} if start else {})}
        labels["com.docker.compose.service"] = f"worker-{index}"
        self.machines[machine].put(f"{NAME}-worker-{index}", state, **labels)

    def is_asked_to_start(self, machine):
        """Tell whether the start of a worker was requested on a machine."""
        return any("--detach" in call for call in self.machines[machine].calls("run"))

    def start(self, *arguments, **environ):
        """Start a command and return its process, which a test can kill."""
        # If a shell started pytest in the background, pytest and its children ignore SIGINT.
        command = ["env", "--default-signal=INT", sys.executable, str(CLUSTER), *arguments]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, env=self.environ | environ, **pipes)

    def run(self, *arguments, **environ):
        command = [sys.executable, str(CLUSTER), *arguments]
        return fake_machines.run(command, self.environ | environ)

    def kept(self):
        return cluster_record.read(self.environ)

    def states(self):
        return {name: one.containers for name, one in self.machines.items()}


@pytest.fixture
def empty(tmp_path):
    """Machines without a cluster."""
    return World(tmp_path)


@pytest.fixture
def world(empty):
    """A cluster that runs on m1 and m2."""
    empty.keep()
    empty.put("m1", 0)
    empty.put("m2", 1)
    return empty

"""Starts the output of `export compose` as its header says. Docker reads that of `export swarm`."""

import signal
import subprocess

import pytest
import yaml

from harness.compose import Compose
from harness.ended import run_and_remove, wait_for_end
from harness.waiting import logs_of, wait_for_text

LIMIT_SECONDS = 150
SETTINGS = ("TRAINER_CHECKPOINT_STEPS=10", "TRAINER_THREADS=1", "VERBOSE=1")


class Exported:
    """A Compose project of an exported file, and its two workers."""

    def __init__(self, bench, project):
        self._client, self.project = bench.client, project

    def up(self):
        """Start the workers as the header says, and return their containers."""
        self.project.up()
        return [
            self._client.containers.get(self.project.container_id(f"worker-{index}"))
            for index in range(2)
        ]


@pytest.fixture
def exported(workbench, tmp_path):
    """Export a file for `epochs` epochs, and make its project. The end removes the project."""
    made = []

    def make(epochs):
        settings = [part for setting in SETTINGS for part in ("--env", setting)]
        arguments = ("export", "compose", "--image", workbench.image, *settings)
        printed = run_and_remove(workbench, *arguments, "--", "--epochs", str(epochs))
        assert printed.code == 0, printed.err
        file = tmp_path / "train.yaml"
        file.write_text(printed.out)
        packages = []
        if workbench.packages:
            overlay = tmp_path / "packages.yaml"
            mount = f'{{volumes: ["{workbench.packages}:/opt/venv:ro"]}}'
            overlay.write_text(f"services: {{worker-0: {mount}, worker-1: {mount}}}\n")
            packages = [overlay]
        made.append(Compose(workbench.new_name("project"), {}, (file, *packages)))
        return Exported(workbench, made[-1])

    yield make
    for project in made:
        project.down()


def test_an_exported_project_trains_and_is_done(exported):
    project = exported(2)
    workers = project.up()
    for worker in workers:
        assert wait_for_end(worker, LIMIT_SECONDS).code == 0, logs_of(worker)
        settings = worker.attrs["HostConfig"]
        assert (settings["ReadonlyRootfs"], settings["CapDrop"]) == (True, ["ALL"])
    for worker in project.up():
        assert wait_for_end(worker, LIMIT_SECONDS).code == 0
        assert "this run is done" in logs_of(worker)


@pytest.mark.long
def test_a_killed_worker_is_started_again_by_up(exported):
    project = exported(12)
    first, second = project.up()
    wait_for_text(first, "epoch  3/12  step", LIMIT_SECONDS)
    second.kill(signal.SIGKILL)
    project.up()
    for worker in (first, second):
        assert wait_for_end(worker, LIMIT_SECONDS).code == 0, logs_of(worker)
    assert "resuming from step" in logs_of(second)


def test_docker_reads_an_exported_stack(workbench, tmp_path):
    """A stack needs a swarm to start, but Docker can read it without one."""
    arguments = ("export", "swarm", "--workers", "3", "--env", "A=$B {{.Node.ID}}")
    printed = run_and_remove(workbench, *arguments, "--", "--epochs", "2")
    file = tmp_path / "stack.yaml"
    file.write_text(printed.out)
    command = ["docker", "stack", "config", "--compose-file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    worker = yaml.safe_load(done.stdout)["services"]["worker"]
    assert worker["deploy"]["replicas"] == 3
    # The client has expanded its own variables, and the engine expands the template.
    assert worker["environment"]["A"] == '$B {{"{{"}}.Node.ID}}'

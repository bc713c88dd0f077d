"""`docker compose up` in a fresh clone: it builds the image, trains, and trains again."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from urllib.request import urlopen

import pytest

from harness.compose import ROOT
from harness.ports import free_ports
from harness.waiting import wait_until

# The image and the cluster need only these folders and files.
NEEDED = ("compose", "entrypoint", "trainer", "requirements", "patches", "scripts")
FILES = ("compose.yaml", "Dockerfile", ".dockerignore", "LICENSE", "NOTICE", "runs/.gitignore")
# A new user's shell has no variables with these prefixes.
OURS = (
    *("TRAINER_", "COMPOSE_", "CLUSTER_", "WORKER", "IMAGE", "RUN"),
    *("DATA_DIR", "WORKSPACE_DIR", "TENSORBOARD_PORT"),
)
SHORT = {"TRAINER_EPOCHS": "1", "TRAINER_STEPS_PER_EPOCH": "3"}
LONG = {"TRAINER_EPOCHS": "1000", "TRAINER_STEPS_PER_EPOCH": "3", "TRAINER_CHECKPOINT_STEPS": "3"}
UP_SECONDS = 500  # with a build that has to fetch its packages
TRAIN_SECONDS = 120
ANSWER_SECONDS = 10


class Clone:
    """A copy of the repository, and Compose in it."""

    def __init__(self, folder, own):
        self.folder, self.own = folder, own
        for name in NEEDED:
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)

    def write_env(self, **settings):
        lines = [f"{name}={text}" for name, text in (self.own | settings).items()]
        (self.folder / ".env").write_text("\n".join(lines) + "\n")

    def compose(self, *arguments):
        """Run a Compose command; return its exit code and its output."""
        environ = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
        done = subprocess.run(
            ["docker", "compose", *arguments],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=UP_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def wait_for_text(self, text):
        logs = lambda: self.compose("logs")[1]  # noqa: E731
        wait_until(lambda: text in logs(), TRAIN_SECONDS, f"a worker prints {text!r}", logs)

    def board(self):
        """Wait for TensorBoard's page, and return it."""
        url, pages = f"http://localhost:{self.own['TENSORBOARD_PORT']}", []

        def answers():
            with suppress(OSError), urlopen(url, timeout=ANSWER_SECONDS) as page:
                pages.append(page.read().decode())
            return pages

        logs = lambda: self.compose("logs", "tensorboard")[1]  # noqa: E731
        wait_until(answers, TRAIN_SECONDS, "TensorBoard has a page", logs)
        return pages[0]

    def runs(self):
        return sorted(path.name for path in (self.folder / "runs").glob("2*"))


@pytest.fixture(scope="module")
def clone(workbench, tmp_path_factory):
    base = subprocess.run(
        [ROOT / "scripts/base-image.sh"], capture_output=True, text=True, check=True
    )
    own = {
        "COMPOSE_PROJECT_NAME": workbench.new_name("clone"),
        "IMAGE": f"{workbench.new_name('built')}:cpu",
        "BASE_IMAGE": base.stdout.strip(),
        "TENSORBOARD_PORT": str(*free_ports(1)),
    }
    if os.getuid():  # root can remove the files of all users
        own |= {"RUN_UID": str(os.getuid()), "RUN_GID": str(os.getgid())}
    copy = Clone(tmp_path_factory.mktemp("clone"), own)
    copy.write_env()
    yield copy
    copy.write_env()
    copy.compose("--profile", "tensorboard", "down", "--volumes", "--timeout", "0")
    workbench.client.images.remove(own["IMAGE"])


@pytest.fixture(scope="module")
def story(clone, workbench):
    """Run twice to the end. Then stop, start and remove a third run; return what was seen."""
    told = {}
    clone.write_env(**SHORT)
    told["first"] = clone.compose("up")
    told["runs after the first"] = clone.runs()
    told["again"] = clone.compose("up")
    told["runs after the second"] = clone.runs()

    clone.write_env(**LONG)
    told["with the board"] = clone.compose("--profile", "tensorboard", "up", "--detach")
    clone.wait_for_text("epoch    2/1000")
    told["page"] = clone.board()
    told["the board's end"] = clone.compose("rm", "--stop", "--force", "tensorboard")
    told["stopped"] = clone.compose("stop")
    told["ended"] = clone.compose("ps", "--all", "--format", "{{.Service}} {{.Status}}")
    clone.compose("start")
    clone.wait_for_text("resuming from step")
    told["logs"] = clone.compose("logs")
    told["running"] = clone.compose("ps", "--format", "{{.Service}} {{.State}}")
    told["runs after the stop"] = clone.runs()
    told["down"] = clone.compose("down")
    told["containers"] = [item.name for item in workbench.containers() if "clone" in item.name]
    return told


def test_it_builds_the_image_and_trains_with_two_workers(clone, story, workbench):
    code, output = story["first"]
    assert code == 0, output
    assert workbench.client.images.get(clone.own["IMAGE"])
    (run,) = story["runs after the first"]
    for worker in ("worker-0", "worker-1"):
        assert f"done: results in /runs/{run}/{worker}" in output
        assert (clone.folder / "runs" / run / worker / "DONE").exists()


def test_a_second_up_trains_again_and_keeps_the_first_results(story):
    code, output = story["again"]
    assert code == 0, output
    assert "no checkpoint on any worker: starting at step 0" in output
    assert len(story["runs after the second"]) == 2
    assert story["runs after the first"][0] in story["runs after the second"]


def test_what_was_stopped_goes_on_when_it_is_started(story):
    assert story["stopped"][0] == 0
    assert story["ended"][1].count("Exited (143)") == 2, story["ended"]
    resumed = re.search(r"resuming from step (\d+)", story["logs"][1])
    assert int(resumed[1]) > 0
    assert len(story["runs after the stop"]) == 3


def test_tensorboard_is_there_beside_the_workers_where_it_is_wanted(story):
    code, output = story["with the board"]
    assert code == 0, output
    assert "<title>TensorBoard</title>" in story["page"]
    assert story["the board's end"][0] == 0


def test_ps_logs_and_down_know_the_cluster(story):
    assert sorted(story["running"][1].split()) == ["running", "running", "worker-0", "worker-1"]
    assert "worker-1" in story["logs"][1]
    assert story["down"][0] == 0
    assert story["containers"] == []


def test_a_misspelt_setting_in_the_file_is_refused_with_the_nearest(clone):
    clone.write_env(TRAINER_EPOCH="3")
    code, output = clone.compose("up")
    clone.compose("down")
    assert code != 0
    assert "TRAINER_EPOCH: " in output
    assert "Did you mean TRAINER_EPOCHS?" in output
    assert "worker-0 of 2" not in output


def test_more_workers_are_a_list_of_names(clone):
    clone.write_env(COMPOSE_PROFILES="worker-2,worker-3")
    services = clone.compose("config", "--services")[1].split()
    assert sorted(services) == ["run-folder", *(f"worker-{index}" for index in range(4))]
    hosts = re.findall(r"WORKER_HOSTS: (.*)", clone.compose("config")[1])
    assert hosts[0] == "worker-0,worker-1,worker-2,worker-3"

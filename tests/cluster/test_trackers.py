"""The scripts of docs/how-to/trackers.md record one run per cluster, and continue it after a kill.

The image installs their packages from wheels that requirements/trackers.txt pins. There is no
network, so the trackers write files.
"""

import re
from pathlib import Path

import pytest

from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_for_text
from harness.wheels import download_wheels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/trackers.md").read_text()
EPOCHS = 12
LIMIT_SECONDS = 240
OFFLINE = {
    "wandb": {"WANDB_MODE": "offline"},
    "mlflow": {"MLFLOW_TRACKING_URI": "file:///runs/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"},
}
# Kills the script's own process. In other command lines, the entrypoint's words come first.
KILL = """
import os, pathlib, signal
lines = pathlib.Path("/proc").glob("[0-9]*/cmdline")
words = {int(one.parent.name): one.read_bytes().split(b"\\0")[1:] for one in lines}
os.kill(min(pid for pid, rest in words.items() if rest == [b"train.py", b""]), signal.SIGKILL)
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheels():
    """The folder with the wheels, for the image's Python."""
    return download_wheels("trackers")


def blocks(tracker):
    """Return the page's requirements.txt and script of a tracker."""
    (section,) = [one for one in PAGE.split("\n## ") if f"import {tracker}\n" in one]
    packages, script = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    return packages, script


@pytest.fixture
def begin(peers, wheels, tmp_path):
    """Start both workers with a tracker's script; return them and their /runs."""

    def start(tracker):
        cluster = peers(2)
        workspace = tmp_path / "workspace"
        workspace.mkdir()
        packages, script = blocks(tracker)
        (workspace / "requirements.txt").write_text(packages)
        (workspace / "train.py").write_text(script)
        workers = []
        for index in range(2):
            for name in ("runs", "data"):
                (tmp_path / f"{name}-{index}").mkdir()
            volumes = [
                f"{workspace}:/workspace",
                f"{wheels}:/wheels:ro",
                f"{tmp_path}/runs-{index}:/runs",
                f"{tmp_path}/data-{index}:/data",
            ]
            options = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", "TRAINER_THREADS": "1"}
            options |= {"TRAINER_CHECKPOINT_STEPS": "50", **OFFLINE[tracker]}
            workers.append(cluster.start(index, "python", "train.py", volumes=volumes, **options))
        return workers, [tmp_path / f"runs-{index}" for index in range(2)]

    return start


def killed_and_done(workers, index):
    """Kill a worker's script in its third epoch; wait until both workers have succeeded."""
    wait_for_text(workers[0], f"Epoch 3/{EPOCHS}", LIMIT_SECONDS)
    killed = workers[index].exec_run(["python", "-c", KILL])
    assert killed.exit_code == 0, killed.output
    for worker in workers:
        assert wait_for_end(worker, LIMIT_SECONDS).code == 0, logs_of(worker)
    assert "resuming from step" in logs_of(workers[0])


@pytest.mark.parametrize("index", [0, 1])
def test_wandb_has_one_run(begin, index):
    workers, (of_chief, of_other) = begin("wandb")
    killed_and_done(workers, index)
    folders = sorted(of_chief.glob("wandb/offline-run-*"))
    assert len(folders) == (2 if index == 0 else 1)  # one for each start of the chief's script
    assert {folder.name.split("-", 3)[3] for folder in folders} == {"example-1"}
    assert not (of_other / "wandb").exists()
    assert all((folder / "run-example-1.wandb").stat().st_size > 0 for folder in folders)


@pytest.mark.parametrize("index", [0, 1])
def test_mlflow_has_one_run_with_every_epoch(begin, index):
    workers, (of_chief, of_other) = begin("mlflow")
    killed_and_done(workers, index)
    (metric,) = of_chief.glob("mlruns/0/*/metrics/loss")
    steps = [int(line.split()[2]) for line in metric.read_text().splitlines()]
    assert sorted(set(steps)) == list(range(EPOCHS))
    (run,) = of_chief.glob("mlruns/0/*/metrics")
    # The engine copies files that the chief's callbacks write: docs/reference/keras.md.
    copies = {path.parent.name for path in of_other.glob("mlruns/0/*/metrics")}
    assert copies <= {run.parent.name}

"""`report` and `tensorboard` of a cluster on machines: they show copies of the records."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.ports import free_ports
from harness.waiting import wait_until
from machines import cluster_record

pytestmark = pytest.mark.slow

COMPOSE = Path(__file__).parents[5] / "compose"
PROGRAM = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from local_cluster.commands import report
from local_cluster.main import main
from machines.commands import fetch_records
report.PACKAGES, fetch_records.EVERY_SECONDS = Path(sys.argv[2]), 0.05
sys.exit(main([sys.argv[3]], os.environ, ""))
"""


@pytest.fixture
def there(world):
    """The folder of each worker on its machine, with records and large files."""
    machines = [world.machines[name].folder / "cluster-trainer" for name in ("m1", "m2")]
    cluster_record.write(replace(world.kept(), folders=tuple(map(str, machines))), world.environ)
    found = [one / f"runs/first/worker-{index}" for index, one in enumerate(machines)]
    for folder in found:
        for name in ("metrics.jsonl", "fit-1/events", "fit-1/checkpoints/1.npz", "model.keras"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("old")
    return found


@pytest.fixture
def start(world, tmp_path):
    """Return a function that starts a command, with docker's fake in place of a container."""

    def begin(command):
        port = {"TENSORBOARD_PORT": str(free_ports(1)[0])}
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, COMPOSE, tmp_path, command],
            env=world.environ | port,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def here(world, index, name):
    return world.folder / f"runs/first/worker-{index}" / name


def shown(world):
    """Return the docker commands that were to show the results."""
    calls = (world.folder / "machines/here/calls").read_text().splitlines()
    return [call for call in map(json.loads, calls) if call[0] == "run"]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("command", ["report", "tensorboard"])
def test_the_records_of_all_workers_are_copied_without_large_files(world, start, command):
    process = start(command)
    out, err = process.communicate(timeout=60)
    (call,) = shown(world)
    assert str(world.folder / "runs") in " ".join(call), (out, err)
    for index in range(2):
        assert here(world, index, "metrics.jsonl").read_text() == "old", (out, err)
        assert here(world, index, "fit-1/events").exists()
        assert here(world, index, "container.log").exists()
        assert not here(world, index, "model.keras").exists()
        assert not here(world, index, "fit-1/checkpoints").exists()


@pytest.mark.usefixtures("there")
def test_a_report_is_about_the_clusters_run(world, start):
    (world.folder / "runs/latest").unlink()
    assert start("report").wait(60) is not None
    (call,) = shown(world)
    assert call[-1] == f"{world.folder}/runs/first"


@pytest.mark.parametrize("command", ["report", "tensorboard"])
def test_earlier_copies_are_shown_of_a_machine_that_is_away(world, there, start, command):
    assert world.run("fetch").returncode == 0
    (there[0] / "metrics.jsonl").write_text("new")
    world.machines["m2"].cut_off()
    out, err = start(command).communicate(timeout=60)
    assert "some records could not be fetched; earlier copies are shown instead" in err, out
    texts = [here(world, index, "metrics.jsonl").read_text() for index in range(2)]
    assert texts == ["new", "old"]
    assert here(world, 1, "model.keras").exists()  # `fetch` has copied it
    assert shown(world)


def test_tensorboard_copies_new_records_until_it_ends(world, there, start):
    hangs = world.folder / "machines/here/hang-run"
    hangs.touch()
    process = start("tensorboard")
    wait_until(lambda: here(world, 0, "metrics.jsonl").exists(), 60, "the first copy", world.states)
    (there[1] / "metrics.jsonl").write_text("new")
    copy = here(world, 1, "metrics.jsonl")
    wait_until(lambda: copy.exists() and copy.read_text() == "new", 60, "a copy", world.states)
    hangs.unlink()
    process.communicate(timeout=60)  # until the child process has ended, too: it has the pipes
    assert shown(world)

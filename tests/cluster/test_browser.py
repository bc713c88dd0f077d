"""TensorBoard and a report in a real browser.

The tests are long: the browser's image is 0.7 GB, and takes a minute or two to build.
"""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from harness.board import open_board
from harness.browser import PROJECT, build_browser, look
from harness.cluster import PROGRAM
from harness.waiting import wait_until

pytestmark = pytest.mark.long
EPOCHS = 60
NARROW, WIDE = 360, 1200
HEIGHT = 1060  # of the picture
# The trainer is two processes. The younger one trains.
KILL = """
import os, pathlib
lines = {one.parent.name: one for one in pathlib.Path("/proc").glob("[0-9]*/cmdline")}
trainers = [int(pid) for pid, one in lines.items() if one.read_bytes().endswith(b"-m\\0trainer\\0")]
os.kill(max(trainers), 9)
"""


@pytest.fixture(scope="module")
def trained(begin, workbench):
    """A run of two workers: worker 1 was killed and started again."""
    cluster = begin(WORKERS=2, TRAINER_EPOCHS=EPOCHS)
    cluster.wait_for_text(f"epoch 20/{EPOCHS}", 120)
    worker = f"{cluster.place['COMPOSE_PROJECT_NAME']}-worker-1-1"
    killed = workbench.client.containers.get(worker).exec_run(["python", "-I", "-c", KILL])
    assert killed.exit_code == 0, killed.output
    return cluster.end(240).raise_unless_done()


@pytest.fixture(scope="module", autouse=True)
def _browser():
    build_browser()


def test_tensorboard_draws_a_curve_with_its_points(trained, workbench, run_to_end, tmp_path):
    with open_board(trained.folder.parent, workbench.image, tmp_path / "output.log") as board:
        tags = lambda: board.ask("data/plugin/scalars/tags")  # noqa: E731
        wait_until(lambda: len(tags() or {}) == 4, 120, "TensorBoard has read it", board.output)
        (container,) = [
            one
            for one in workbench.client.containers.list()
            if any(str(board.port) == to["HostPort"] for to in _ports(one))
        ]
        address = "http://localhost:6006/?tagFilter=epoch%2Floss&smoothing=0#timeseries"
        told = ("curve", address, "epoch/loss")
        found = look(run_to_end, *told, network=container, folder=tmp_path)
    assert found["requests"]
    assert [one for one in found["requests"] if not one.startswith("http://localhost:6006/")] == []
    metrics = trained.metrics()
    for name in ("loss", "test_loss"):
        values = [line[name] for line in metrics]
        assert any(_draws(one, values) for one in found["curves"]), (values, found)
        assert not any(_draws(one, values[::-1]) for one in found["curves"])


def _ports(container):
    return [to for tos in container.ports.values() for to in tos or ()]


def _draws(curve, values):
    """Tell whether a curve has one point for each value, within half a pixel."""
    if len(curve) != len(values):
        return False
    steps, heights = np.array(curve).T
    fitted = np.poly1d(np.polyfit(values, heights, 1))(values)
    is_even = np.allclose(np.diff(steps), np.diff(steps)[0], atol=0.5)
    return is_even and np.allclose(fitted, heights, atol=0.5)


@pytest.fixture(scope="module")
def report(trained, workbench):
    """Write a report as `make report` does; return its file."""
    subprocess.run(["scripts/build.sh", "report"], cwd=PROJECT, check=True)
    given = {"RUNS_DIR": str(trained.folder.parent), "IMAGE": workbench.image}
    subprocess.run([*PROGRAM, "report"], env=os.environ | given, check=True)
    return trained.folder / "report.html"


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_report_fits_its_screen_and_asks_for_nothing(
    report, width, run_to_end, tmp_path, request
):
    shutil.copy(report, tmp_path / "report.html")
    told = ("page", "file:///pages/report.html", str(width), "/pages/picture.png", str(HEIGHT))
    found = look(run_to_end, *told, network=None, folder=tmp_path)
    assert found["width"] == found["content"] == width
    assert found["wider"] == []
    assert found["said"] == []
    asked = [one for one in found["requests"] if not one.startswith("data:")]
    assert asked == ["file:///pages/report.html"]
    # Two metrics, the rate, the timeline, speed, where the time went, the confusion matrix.
    assert found["drawings"] == 7
    assert found["pictures"] == len(_predictions(report)["pictures"])
    assert "not recorded" not in found["text"]
    assert "resumed" in found["text"]
    picture = request.config.getoption("--report-picture")
    if picture and width == WIDE:
        shutil.copy(tmp_path / "picture.png", picture)


def _predictions(report):
    return json.loads((report.parent / "worker-0/predictions.json").read_text())

"""The tutorials' scripts, unchanged, as `docker run … python task.py` runs them on two workers."""

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.ended import run_and_remove, wait_for_end
from harness.mnist_downloads import KERAS_PROGRAM, KERAS_SITECUSTOMIZE, TFDS_PROGRAM
from harness.peers import running_workers
from harness.small_mnist import program
from harness.waiting import wait_for_text

TUTORIALS = Path(__file__).parents[2] / "examples/tutorials"
FOUR_MACHINES = TUTORIALS / "four-machines"
TASK = TUTORIALS / "two-machines/task.py"
# One file a split, as TFDS writes MNIST by itself.
SMALL_MNIST = program(train_examples=4096, shards=1)
ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",
    "PYTHONPATH": "/site",
    # Two workers share the machine. More threads would only compete for its cores.
    "TF_NUM_INTRAOP_THREADS": "1",
}
RUN_SECONDS = 120
GRACE_SECONDS = 10
# `fit` prints the epoch's remaining time after each step, and the time of a step at its end.
A_STEP = "ETA: "
EPOCH = re.compile(r"/step - loss: (\d+\.\d+) - accuracy: (\d+\.\d+)")


@pytest.fixture(scope="module")
def prepared(workbench, tmp_path_factory):
    """Folders with the files that MNIST's downloads would bring."""
    folder = tmp_path_factory.mktemp("prepared")
    programs = SMALL_MNIST + KERAS_PROGRAM + TFDS_PROGRAM
    run = run_and_remove(workbench, "python", "-c", programs, volumes=[f"{folder}:/prepared"])
    assert run.code == 0, run.err
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(KERAS_SITECUSTOMIZE)
    return folder


@pytest.fixture(scope="module")
def settings(prepared):
    """Return the options of a script's containers, with its folder and its data mounted."""

    def of(script, data):
        folders = {
            script.parent: "/workspace:ro",
            data: "/data",
            prepared / "keras": "/home/trainer/.keras",
            prepared / "site": "/site:ro",
        }
        volumes = [f"{outside}:{inside}" for outside, inside in folders.items()]
        return {"environment": ENVIRONMENT, "volumes": volumes}

    return of


@pytest.fixture(scope="module")
def downloaded(workbench, settings, prepared):
    """MNIST as four-machines/prepare.py prepares it from the downloads."""
    data = prepared / "downloaded"
    options = settings(FOUR_MACHINES / "prepare.py", data)
    run = run_and_remove(workbench, "python", "prepare.py", **options)
    assert run.code == 0, run.err
    return data


def run_on_two(workbench, script, options):
    with running_workers(workbench, "python", script.name, **options) as workers:
        return [wait_for_end(worker, RUN_SECONDS) for worker in workers]


@pytest.fixture(scope="module")
def four_machines(workbench, settings, downloaded):
    script = FOUR_MACHINES / "train.py"
    return run_on_two(workbench, script, settings(script, downloaded))


@pytest.fixture(scope="module")
def two_machines(workbench, settings, prepared):
    return run_on_two(workbench, TASK, settings(TASK, prepared))


@pytest.fixture(scope="module")
def two_workers_lab(workbench, settings, prepared):
    script = TUTORIALS / "two-workers-lab/main.py"
    return run_on_two(workbench, script, settings(script, prepared))


@pytest.mark.long  # test_own_script.py
@pytest.mark.parametrize("tutorial", ["four_machines", "two_machines", "two_workers_lab"])
def test_both_workers_end_well_with_the_same_metrics(request, tutorial):
    first, second = request.getfixturevalue(tutorial)
    assert (first.code, second.code) == (0, 0), (first, second)
    assert len(EPOCH.findall(first.out)) == 3, first
    assert EPOCH.findall(first.out) == EPOCH.findall(second.out)
    assert "ran out of data" not in first.out + first.err


@pytest.mark.long  # two-machines/task.py trains the same, on two machines
def test_the_local_check_trains_on_one_machine(workbench, settings, prepared):
    options = settings(FOUR_MACHINES / "local.py", prepared)
    run = run_and_remove(workbench, "python", "local.py", **options)
    assert run.code == 0, run
    assert len(EPOCH.findall(run.out)) == 3, run


@pytest.fixture
def endless(request, settings, tmp_path):
    """Copy a script's folder, with epochs that only a signal ends; return the copy's options."""

    def copy(script, fit, data):
        shutil.copytree(script.parent, tmp_path / "copy")
        text = script.read_text()
        assert text.count(fit) == 1
        longer = tmp_path / "copy" / script.name
        # Without a number of steps, an epoch is one pass over the data, so the data never run out.
        longer.write_text(text.replace(fit, "epochs=100_000"))
        return settings(longer, request.getfixturevalue(data))

    return copy


def stop(worker):
    """Stop a container as `docker stop` does; return the duration in seconds."""
    begin = time.monotonic()
    worker.stop(timeout=GRACE_SECONDS)
    return time.monotonic() - begin


@pytest.mark.long  # test_script.py and test_own_script.py stop scripts
@pytest.mark.parametrize(
    ("script", "fit", "data"),
    [
        pytest.param(
            *("four-machines/train.py", "epochs=3, steps_per_epoch=5", "downloaded"),
            id="train.py",
        ),
        pytest.param("two-machines/task.py", "epochs=3", "prepared", id="task.py"),
        pytest.param(
            *("two-workers-lab/main.py", "epochs=3", "prepared"),
            id="main.py",
        ),
    ],
)
def test_docker_stop_ends_a_script_that_trains(workbench, endless, script, fit, data):
    script = TUTORIALS / script
    options = endless(script, fit, data)
    with running_workers(workbench, "python", script.name, **options) as workers:
        for worker in workers:
            wait_for_text(worker, A_STEP, RUN_SECONDS)
        with ThreadPoolExecutor() as pool:
            seconds = list(pool.map(stop, workers))
        ended = [wait_for_end(worker) for worker in workers]
    assert [worker.code for worker in ended] == [143, 143], ended
    assert max(seconds) < GRACE_SECONDS

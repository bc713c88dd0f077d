"""Keras's own fit on two workers ends as on one device, and as on two devices of one worker.

All programs run one after the other in the same two processes (keras_programs/__main__.py).
"""

import json
from pathlib import Path

import pytest

from harness.ended import run_and_remove

PROGRAMS = Path(__file__).parent / "keras_programs"
NAMES = [
    "regression",
    "binary_with_auc",
    "two_outputs",
    "class_weight",
    "sample_weight",
    "several_steps_a_call",
    "validation_split",
    "any_size",
    "by_hand",
    "language_model",
    "own_train_step",
    "segmentation",
    "frozen_backbone",
]
# Dropout has the same masks on all replicas, and BatchNorm a replica's own statistics.
NOT_AS_ON_ONE_DEVICE = ["random_and_normalised"]
MAX_SECONDS = 500
# Two processes in one container, each behind the image's entrypoint.
LAUNCHER = """
import os, subprocess, sys

entrypoint = [sys.executable, "-I", "-m", "entrypoint", "python", "/programs", "/outcomes"]
hosts = "127.0.0.1:2222,127.0.0.1:2223"
workers = [
    subprocess.Popen(
        entrypoint,
        env={**os.environ, "WORKER_HOSTS": hosts, "WORKER_INDEX": f"{index}", "MAX_RESTARTS": "0"},
    )
    for index in range(2)
]
sys.exit(max(abs(worker.wait()) for worker in workers))
"""


@pytest.fixture(scope="module")
def outcomes(workbench, tmp_path_factory):
    """What each program ended with: alone, on two devices, and on each of two workers."""
    folder = tmp_path_factory.mktemp("outcomes")
    ended = run_and_remove(
        workbench,
        *["-c", LAUNCHER],
        timeout_seconds=MAX_SECONDS,
        entrypoint="python",
        init=True,
        network_mode="none",
        volumes=[f"{PROGRAMS}:/programs:ro", f"{folder}:/outcomes"],
        environment={"TF_NUM_INTRAOP_THREADS": "1"},
    )
    print(ended.out)  # with the seconds of each program
    assert ended.code == 0, ended.err
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_close(found[name], value, tolerance)
        else:
            assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize("where", ["worker-0", "worker-1", "devices"])
@pytest.mark.parametrize("name", NAMES)
def test_a_program_ends_as_on_one_device(outcomes, name, where):
    assert_close(outcomes[where][name], outcomes["alone"][name], 1e-4)


@pytest.mark.parametrize("name", NOT_AS_ON_ONE_DEVICE)
def test_two_workers_are_as_two_devices(outcomes, name):
    assert_close(outcomes["worker-0"][name], outcomes["devices"][name], 1e-4)


def test_nothing_else_was_run(outcomes):
    expected = {*NAMES, *NOT_AS_ON_ONE_DEVICE}
    assert {where: {*ended} for where, ended in outcomes.items()} == dict.fromkeys(
        ["alone", "devices", "worker-0", "worker-1"], expected
    )


@pytest.mark.parametrize("name", NAMES + NOT_AS_ON_ONE_DEVICE)
def test_both_workers_say_the_same(outcomes, name):
    """To the last digit, so that what callbacks decide by them is the same."""
    first, second = (dict(outcomes[where][name]) for where in ("worker-0", "worker-1"))
    if name in NOT_AS_ON_ONE_DEVICE:  # BatchNorm's statistics are each replica's own
        del first["weights"], second["weights"]
    assert first == second

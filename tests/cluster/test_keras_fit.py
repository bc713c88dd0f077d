"""Keras's own fit ends on two workers as on one device, and as on two devices of one worker.

All programs run one after the other in the same two processes (keras_programs/__main__.py).
"""

import json
from pathlib import Path

import pytest

from harness.ended import run_and_remove

PROGRAMS = Path(__file__).parent / "keras_programs"
# The relative tolerances of weights, metrics and predictions, compared with one device.
ROUNDING = 1e-4
TOLERANCES = {
    **dict.fromkeys(
        [
            *["regression", "binary_with_auc", "multi_label", "two_outputs"],
            *["class_weight", "sample_weight", "several_steps_a_call", "validation_split"],
            *["any_size", "by_hand"],
            *["schedule", "accumulation", "clipnorm", "clipvalue", "moving_average"],
            *[
                "sum_of_losses",
                "loss_of_each",
                "mean_over_weights",
                "more_terms",
                "eagerly",
                "xla",
                "callbacks",
            ],
            *["language_model", "generator", "py_dataset", "shuffled_py_dataset", "strings"],
            *["masked_sequences", "endless", "unknown_length"],
            *["segmentation", "autoencoder", "vae", "gan", "own_train_step", "frozen_backbone"],
            "positions",
        ],
        ROUNDING,
    ),
    "float16": 1e-3,
    "overflow": 1e-3,
    "bfloat16": 1e-2,
}
# Random layers draw differently on each replica, and BatchNorm uses the replica's own statistics.
BY_CHANCE = ["random_and_normalised", "noisy_vae", "masks"]
# Equal to one device only where one process reads. TensorFlow takes workers' data as different.
BY_TENSORFLOW = ["shared_by_tensorflow"]
# Only these run on two devices, except in the long tests. A replica runs the same code there as on
# two workers, and the tests in the image use devices, too.
ON_DEVICES = [
    *["overflow", "masked_sequences", "gan", *BY_TENSORFLOW, *BY_CHANCE],
    *[f"{name} again" for name in BY_CHANCE],
]
# Only the long tests run these. Each resembles another program, or a test in the image.
LEFT_OUT = [
    *["moving_average", "eagerly", "xla"],  # test_fit.py, test_first_batch.py, test_xla.py
    *["frozen_backbone", "py_dataset"],  # test_building.py, test_engine_as_keras.py
    *["clipnorm", "mean_over_weights"],  # test_whole_batch.py, test_own_parts.py
    "vae",  # "noisy_vae"
    *["sample_weight", "segmentation", "own_train_step", "generator", "strings"],
    "binary_with_auc",
    *["clipvalue", "sum_of_losses", "loss_of_each", "more_terms"],
    *["class_weight", "schedule", "bfloat16", "float16"],
    *["regression", "multi_label", "autoencoder"],
    *["endless", "unknown_length", "shuffled_py_dataset", "positions"],
]
IN_ALL = [name for name in TOLERANCES if name not in LEFT_OUT]
MAX_SECONDS = 1800  # two minutes alone, longer beside other tests
pytestmark = pytest.mark.timeout(MAX_SECONDS + 60)
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
    """The outcome of each program: alone, on each of two workers, and for some on two devices."""
    chosen = {"ON_DEVICES": ",".join(ON_DEVICES), "LEFT_OUT": ",".join(LEFT_OUT)}
    return run_all(workbench, tmp_path_factory, chosen)


@pytest.fixture(scope="module")
def all_outcomes(workbench, tmp_path_factory):
    """The outcomes of all programs, each also on two devices."""
    return run_all(workbench, tmp_path_factory, {})


def run_all(workbench, tmp_path_factory, settings):
    folder = tmp_path_factory.mktemp("outcomes")
    ended = run_and_remove(
        workbench,
        *["-c", LAUNCHER],
        timeout_seconds=MAX_SECONDS,
        entrypoint="python",
        init=True,
        network_mode="none",
        volumes=[f"{PROGRAMS}:/programs:ro", f"{folder}:/outcomes"],
        environment={"TF_NUM_INTRAOP_THREADS": "1"} | settings,
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
            assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance / 10), name


@pytest.mark.parametrize("name", IN_ALL)
def test_two_workers_end_as_one_device(outcomes, name):
    assert_close(outcomes["worker-0"][name], outcomes["alone"][name], TOLERANCES[name])


@pytest.mark.long
@pytest.mark.parametrize("name", LEFT_OUT)
def test_two_workers_end_as_one_device_in_the_long_programs(all_outcomes, name):
    assert_close(all_outcomes["worker-0"][name], all_outcomes["alone"][name], TOLERANCES[name])
    assert all_outcomes["worker-0"][name] == all_outcomes["worker-1"][name]


@pytest.mark.parametrize("name", [name for name in TOLERANCES if name in ON_DEVICES])
def test_two_devices_end_as_one(outcomes, name):
    assert_close(outcomes["devices"][name], outcomes["alone"][name], TOLERANCES[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TOLERANCES if name not in ON_DEVICES])
def test_the_other_programs_end_on_two_devices_as_on_one(all_outcomes, name):
    assert_close(all_outcomes["devices"][name], all_outcomes["alone"][name], TOLERANCES[name])


@pytest.fixture(scope="module")
def over_ring(workbench, tmp_path_factory):
    """The outcomes without a strategy, on two workers that sum over a ring."""
    return run_all(workbench, tmp_path_factory, {"TRAINER_COLLECTIVES": "ring"})


@pytest.mark.long
@pytest.mark.parametrize("name", TOLERANCES)
def test_each_program_ends_over_a_ring_as_on_one_device(all_outcomes, over_ring, name):
    assert_close(over_ring["worker-0"][name], all_outcomes["alone"][name], TOLERANCES[name])
    assert over_ring["worker-0"][name] == over_ring["worker-1"][name]


OVER_BOTH = ["by_hand", "masked_sequences", "gan"]


@pytest.fixture(scope="module")
def over_both(workbench, tmp_path_factory):
    """A few outcomes without a strategy, on two workers of two devices each, over a ring."""
    settings = {"TRAINER_COLLECTIVES": "ring", "TRAINER_LOGICAL_CPUS": "2"}
    names = [*TOLERANCES, *BY_CHANCE, *(f"{name} again" for name in BY_CHANCE)]
    left_out = ",".join(name for name in names if name not in OVER_BOTH)
    return run_all(workbench, tmp_path_factory, settings | {"LEFT_OUT": left_out})


@pytest.mark.parametrize("name", OVER_BOTH)
def test_two_workers_of_two_devices_end_as_one_device(outcomes, over_both, name):
    assert_close(over_both["worker-0"][name], outcomes["alone"][name], TOLERANCES[name])
    assert over_both["worker-0"][name] == over_both["worker-1"][name]


@pytest.mark.long
@pytest.mark.parametrize("name", BY_CHANCE)
def test_a_ring_draws_as_two_devices_do(outcomes, over_ring, name):
    """Predictions of few rows are an exception: each worker makes them by itself."""
    found, expected = over_ring["worker-0"][name], outcomes["devices"][name]
    trained = [one for one in expected if one != "predictions"]
    assert found.keys() == expected.keys()
    assert_close(*({one: all_of[one] for one in trained} for all_of in (found, expected)), ROUNDING)


@pytest.mark.parametrize("name", BY_TENSORFLOW)
def test_what_tensorflow_shares_out_ends_on_two_devices_as_on_one(outcomes, name):
    assert_close(outcomes["devices"][name], outcomes["alone"][name], ROUNDING)


@pytest.mark.parametrize("name", BY_CHANCE)
def test_two_workers_are_as_two_devices(outcomes, name):
    assert_close(outcomes["worker-0"][name], outcomes["devices"][name], ROUNDING)


@pytest.mark.parametrize("where", ["worker-0", "devices", "alone"])
@pytest.mark.parametrize("name", BY_CHANCE)
def test_the_same_seed_ends_alike(outcomes, name, where):
    assert_close(outcomes[where][f"{name} again"], outcomes[where][name], 1e-6)


@pytest.mark.parametrize("where", ["worker-0", "devices"])
def test_each_replica_draws_masks_of_its_own(outcomes, where):
    """The mean of two different masks of 0 and 2 is 1 where only one of them is 0."""
    assert set(outcomes["alone"]["masks"]["history"]["mask"]) == {0.0, 2.0}
    assert set(outcomes[where]["masks"]["history"]["mask"]) == {0.0, 1.0, 2.0}
    predictions = outcomes[where]["masks"]["predictions"]
    middle = len(predictions) // 2
    assert predictions[:middle] != predictions[middle:]


def test_all_replicas_have_the_loss_scale_of_one_device(outcomes):
    """The program skips some steps, but not all."""
    scales = {
        (*ended["overflow"]["scale"], *ended["overflow"]["updates"]) for ended in outcomes.values()
    }
    assert len(scales) == 1
    ((scale, updates),) = scales
    assert scale < 256.0
    assert 0 < updates < 12


def test_a_callback_sees_each_batch(outcomes):
    found = outcomes["worker-0"]["callbacks"]
    epochs = len(found["history"]["loss"])
    assert 0 < epochs < 5
    assert len(found["batches"]) == 4 * epochs


def test_nothing_else_was_run(outcomes):
    expected = {*IN_ALL, *BY_TENSORFLOW, *BY_CHANCE, *(f"{name} again" for name in BY_CHANCE)}
    found = {where: {*ended} for where, ended in outcomes.items()}
    assert found.pop("devices") == {*ON_DEVICES}
    assert found == dict.fromkeys(["alone", "worker-0", "worker-1"], expected)


@pytest.mark.parametrize("name", [*IN_ALL, *BY_TENSORFLOW, *BY_CHANCE])
def test_both_workers_say_the_same(outcomes, name):
    """They agree to the last digit, so that callbacks decide the same on both."""
    assert outcomes["worker-0"][name] == outcomes["worker-1"][name]

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
# The tests that are not long run only these, each on two devices, too. A replica runs the same code
# there as on two workers, and the tests in the image use devices, too.
QUICK = ["by_hand", "language_model", "callbacks", "overflow", "gan", *BY_TENSORFLOW, "masks"]
ALL = [*TOLERANCES, *BY_TENSORFLOW, *BY_CHANCE]


def with_repeats(names):
    """Return the names, and those of the second runs of random programs."""
    return [*names, *(f"{name} again" for name in names if name in BY_CHANCE)]


LEFT_OUT = [name for name in with_repeats(ALL) if name not in with_repeats(QUICK)]
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
    """The outcomes of the quick programs: alone, on each of two workers, and on two devices."""
    return run_all(workbench, tmp_path_factory, {"LEFT_OUT": ",".join(LEFT_OUT)})


@pytest.fixture(scope="module")
def all_outcomes(workbench, tmp_path_factory):
    """The outcomes of all programs."""
    return run_all(workbench, tmp_path_factory, {})


@pytest.fixture
def found(request, name):
    """The outcomes among which the program `name` is."""
    return request.getfixturevalue("outcomes" if name in QUICK else "all_outcomes")


def quick_of(names):
    """Return the names as parameters; those that are not quick are long."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in names]


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


@pytest.mark.parametrize("name", quick_of(TOLERANCES))
def test_two_workers_end_as_one_device(found, name):
    assert_close(found["worker-0"][name], found["alone"][name], TOLERANCES[name])


@pytest.mark.parametrize("name", quick_of(TOLERANCES))
def test_two_devices_end_as_one(found, name):
    assert_close(found["devices"][name], found["alone"][name], TOLERANCES[name])


@pytest.fixture(scope="module")
def over_ring(workbench, tmp_path_factory):
    """The outcomes without a strategy, on two workers that sum over a ring."""
    return run_all(workbench, tmp_path_factory, {"TRAINER_COLLECTIVES": "ring"})


@pytest.mark.long
@pytest.mark.parametrize("name", TOLERANCES)
def test_each_program_ends_over_a_ring_as_on_one_device(all_outcomes, over_ring, name):
    assert_close(over_ring["worker-0"][name], all_outcomes["alone"][name], TOLERANCES[name])
    assert over_ring["worker-0"][name] == over_ring["worker-1"][name]


OVER_BOTH = ["by_hand", "gan"]


@pytest.fixture(scope="module")
def over_both(workbench, tmp_path_factory):
    """A few outcomes without a strategy, on two workers of two devices each, over a ring."""
    settings = {"TRAINER_COLLECTIVES": "ring", "TRAINER_LOGICAL_CPUS": "2"}
    left_out = ",".join(name for name in with_repeats(ALL) if name not in OVER_BOTH)
    return run_all(workbench, tmp_path_factory, settings | {"LEFT_OUT": left_out})


@pytest.mark.parametrize("name", OVER_BOTH)
def test_two_workers_of_two_devices_end_as_one_device(outcomes, over_both, name):
    assert_close(over_both["worker-0"][name], outcomes["alone"][name], TOLERANCES[name])
    assert over_both["worker-0"][name] == over_both["worker-1"][name]


@pytest.mark.long
@pytest.mark.parametrize("name", BY_CHANCE)
def test_a_ring_draws_as_two_devices_do(all_outcomes, over_ring, name):
    """Predictions of few rows are an exception: each worker makes them by itself."""
    found, expected = over_ring["worker-0"][name], all_outcomes["devices"][name]
    trained = [one for one in expected if one != "predictions"]
    assert found.keys() == expected.keys()
    assert_close(*({one: all_of[one] for one in trained} for all_of in (found, expected)), ROUNDING)


@pytest.mark.parametrize("name", BY_TENSORFLOW)
def test_what_tensorflow_shares_out_ends_on_two_devices_as_on_one(outcomes, name):
    assert_close(outcomes["devices"][name], outcomes["alone"][name], ROUNDING)


@pytest.mark.parametrize("name", quick_of(BY_CHANCE))
def test_two_workers_are_as_two_devices(found, name):
    assert_close(found["worker-0"][name], found["devices"][name], ROUNDING)


@pytest.mark.parametrize("where", ["worker-0", "devices", "alone"])
@pytest.mark.parametrize("name", quick_of(BY_CHANCE))
def test_the_same_seed_ends_alike(found, name, where):
    assert_close(found[where][f"{name} again"], found[where][name], 1e-6)


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
    found = {where: {*ended} for where, ended in outcomes.items()}
    places = ["alone", "worker-0", "worker-1", "devices"]
    assert found == {place: {*with_repeats(QUICK)} for place in places}


@pytest.mark.parametrize("name", quick_of(ALL))
def test_both_workers_say_the_same(found, name):
    """They agree to the last digit, so that callbacks decide the same on both."""
    assert found["worker-0"][name] == found["worker-1"][name]

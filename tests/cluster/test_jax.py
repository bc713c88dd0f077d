"""Keras on JAX: a plain script trains the same on several workers, and resumes after any kill."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from harness.ended import wait_for_end

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("frameworks")
BUILT = "cluster-trainer:jax-cpu"
COMMAND = ("python", "/programs/keras_on_jax.py")
TWICE = ("python", "/programs/keras_on_jax_twice.py")
CLOSE, CLOSE_IN_HALF = 1e-5, 1e-2

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module")
def image(request):
    """The image with Keras on JAX: that of --jax-image, or one built from this tree."""
    if given := request.config.getoption("--jax-image"):
        return given
    subprocess.run(["scripts/build.sh", "jax-cpu"], cwd=ROOT, check=True)
    return BUILT


@pytest.fixture
def begin(peers, image):
    """Start `count` workers with the program, and return their containers."""

    def start(count, command=COMMAND, **variables):
        cluster = peers(count)
        mounted = {str(PROGRAMS): {"bind": "/programs", "mode": "ro"}}
        options = {"image": image, "volumes": mounted, **variables}
        return [cluster.start(index, *command, **options) for index in range(count)]

    return start


@pytest.fixture
def ended(begin):
    """Run `count` workers to their ends."""
    return lambda count, *command, **variables: [
        wait_for_end(one) for one in begin(count, *command, **variables)
    ]


def lines_of(one, *kinds):
    assert one.code == 0, one
    found = [line for line in one.out.splitlines() if line.startswith(kinds)]
    assert {line.split()[0] for line in found} == {*kinds}, one
    return found


def numbers_of(one):
    words = " ".join(lines_of(one, "history", "evaluated", "sums")).replace(";", "").split()
    return [float(word) for word in words if word[0].isdigit()]


def digests_of(workers):
    return [lines_of(one, "digest") for one in workers]


def test_parts_hold_in_the_image(image):
    environ = {**os.environ, "IMAGE": image, "FOLDER": "on_jax"}
    command = ["scripts/inside.sh", "tests/on_jax", "-n", "0"]
    subprocess.run(command, cwd=ROOT, env=environ, check=True)


@pytest.mark.parametrize("case", ["arrays", "dataset", "generator", "weights", "ema", "own step"])
def test_two_workers_train_as_one(ended, case):
    (alone,), together = ended(1, CASE=case), ended(2, CASE=case)
    first, second = digests_of(together)
    assert first == second
    for one in together:
        assert numbers_of(one) == pytest.approx(numbers_of(alone), abs=CLOSE, rel=CLOSE)


def test_three_workers_and_batches_that_do_not_divide(ended):
    (alone,), together = ended(1), ended(3)
    for one in together:
        assert numbers_of(one) == pytest.approx(numbers_of(alone), abs=CLOSE, rel=CLOSE)


@pytest.mark.parametrize(
    ("case", "close"),
    [
        ("weights", CLOSE),
        ("sample weights", CLOSE),
        ("mixed_bfloat16", CLOSE_IN_HALF),
        ("mixed_float16", CLOSE_IN_HALF),
        ("bfloat16", CLOSE_IN_HALF),
    ],
)
def test_three_workers_train_as_one_with_weights_and_in_half_precision(ended, case, close):
    (alone,), together = ended(1, CASE=case), ended(3, CASE=case)
    first, *others = digests_of(together)
    assert others == [first, first]
    for one in together:
        assert numbers_of(one) == pytest.approx(numbers_of(alone), abs=close, rel=close)


def test_without_a_seed_all_begin_with_the_chiefs_weights(ended):
    first, second = digests_of(ended(2, CASE="no seed"))
    assert first == second


@pytest.mark.parametrize(
    ("case", "killed"),
    [
        *itertools.product(["arrays", "dataset", "generator", "ema"], [0, 1]),
        ("bfloat16", 1),
        ("mixed_float16", 1),
    ],
)
def test_a_killed_worker_is_met_again_and_the_weights_are_the_same(ended, case, killed):
    undisturbed = ended(2, CASE=case)
    disturbed = ended(2, CASE=case, KILLS=killed)
    assert all("resuming from step" in one.out + one.err for one in disturbed), disturbed
    assert digests_of(disturbed) == digests_of(undisturbed)
    assert [lines_of(one, "history") for one in disturbed] == [
        lines_of(one, "history") for one in undisturbed
    ]


def test_a_script_that_had_stopped_early_and_is_killed_later_is_not_trained_on(ended):
    undisturbed, disturbed = ended(2, CASE="early", KILLS=9), ended(2, CASE="early", KILLS=1)
    assert digests_of(disturbed) == digests_of(undisturbed)
    assert lines_of(disturbed[0], "history") == lines_of(undisturbed[0], "history")


def test_callbacks_that_steer_on_one_worker_only_are_told_and_the_fit_resumes(ended):
    undisturbed, disturbed = ended(2), ended(2, CASE="own steering", KILLS=0)
    told = "the callbacks that steer the fit differ between workers"
    assert told in disturbed[0].out + disturbed[0].err, disturbed
    assert "resuming from step" in disturbed[0].out + disturbed[0].err, disturbed
    assert digests_of(disturbed) == digests_of(undisturbed)


def test_a_worker_that_is_asked_to_stop_stops_all_and_all_resume(begin, ended):
    undisturbed = ended(2)
    workers = begin(2, CASE="stop")
    assert wait_for_end(workers[1]).code == 143
    workers[1].start()
    disturbed = [wait_for_end(one) for one in workers]
    assert digests_of(disturbed) == digests_of(undisturbed)


def test_weights_that_one_worker_has_changed_are_told_and_made_alike(ended):
    workers = ended(2, CASE="meddling")
    assert "the workers' weights differ at the end of epoch 2" in workers[0].out + workers[0].err
    first, second = digests_of(workers)
    assert first == second


def test_a_learning_rate_that_one_worker_has_set_is_told_and_made_alike(ended):
    workers = ended(2, CASE="rate")
    assert "the workers' weights differ before batch" in workers[0].out + workers[0].err
    first, second = digests_of(workers)
    assert first == second == digests_of(ended(2))[0]


@pytest.mark.parametrize("case", ["ema early", "files", "validation"])
@pytest.mark.parametrize("kill", [{"KILLS": 1}, {"ENDS": 0}])
def test_what_a_fit_leaves_to_the_script_is_the_same_after_a_kill(ended, case, kill):
    kinds = ("history", "evaluated", "digest", *(["stopped"] if "early" in case else []))
    none = dict.fromkeys(kill, 9)  # the program trains longer where KILLS is set
    undisturbed, disturbed = ended(2, CASE=case, **none), ended(2, CASE=case, **kill)
    # A script that is killed after its fit prints the same lines again.
    first, second = ([*dict.fromkeys(lines_of(one, *kinds))] for one in disturbed)
    assert first == second == lines_of(undisturbed[0], *kinds)


def test_a_loss_that_reads_another_number_after_a_restart_is_refused(ended):
    for one in ended(2, CASE="later number", KILLS=1):
        assert one.code == 78, one
        assert "the compiled step" in one.err, one


def test_other_arguments_on_one_worker_are_refused(peers, image):
    cluster = peers(2)
    mounted = {str(PROGRAMS): {"bind": "/programs", "mode": "ro"}}
    options = {"image": image, "volumes": mounted}
    workers = [cluster.start(rank, *COMMAND, f"--rate={rank}", **options) for rank in range(2)]
    for one in map(wait_for_end, workers):
        assert one.code == 78, one
        assert "arguments" in one.err, one


@pytest.mark.parametrize(
    ("case", "epochs"),
    [
        ("alone", 1),
        ("alone by a lambda", 1),
        ("alone at an epoch", 2),
        ("alone from the first step", 1),
    ],
)
def test_a_callback_that_stops_on_one_worker_stops_all(ended, case, epochs):
    workers = ended(2, CASE=case)
    first, second = digests_of(workers)
    assert first == second
    for one in workers:
        assert len(lines_of(one, "history")[0].split()) == epochs + 2, one  # and two words before


def test_a_second_process_beside_the_first_is_refused_and_the_first_trains_on(ended):
    expected = digests_of(ended(2))
    workers = ended(2, TWICE, HOW="together")
    for one in workers:
        assert lines_of(one, "ends") == ["ends 0 78"], one
        assert "beside process" in one.err, one
    assert digests_of(workers) == expected


def test_a_process_after_the_first_trains_with_the_others_and_saves_nothing(ended):
    (expected,), _ = digests_of(ended(2))
    for one in ended(2, TWICE, HOW="after"):
        assert lines_of(one, "ends") == ["ends 0 0"], one
        assert lines_of(one, "digest") == [expected, expected], one
        assert "are not saved" in one.out + one.err, one


def test_an_error_of_the_scripts_own_is_not_a_lost_worker(ended):
    first, _ = ended(2, CASE="own error", MAX_RESTARTS=0)
    assert first.code == 1, first
    assert "the connection to my database" in first.err, first


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("other data", "the arrays"),
        ("other number", "the compiled step"),
        ("short", "the data"),
        ("shuffle", "shuffle"),
        ("distribution", "set_distribution"),
        ("own loop", "apply, outside of fit"),
        ("one trains", "train_on_batch"),
        ("unlike draws", "the data"),
        ("inner fit", "a fit within a fit"),
        ("steps_per_execution", "steps_per_execution"),
        ("run_eagerly", "run_eagerly"),
        ("train_on_batch", "train_on_batch"),
        ("thread", "in a thread"),
        ("tensorflow", "tensorflow"),
        ("tensorflow first", "tensorflow"),
    ],
)
def test_refuses(ended, case, word):
    for one in ended(2, CASE=case):
        assert one.code == 78, one
        assert word in one.err, one

"""Every `fit` of a script survives the loss of any worker and its disk, with the same weights."""

import json
import math
import random
import re
from pathlib import Path

import pytest

from harness.loopback import Case, run_cases

WORKSPACE = Path(__file__).parent / "workspace"
SCRIPT = ("python", "/scripts/kept_fits.py")
SETTINGS = {"TRAINER_CHECKPOINT_STEPS": "5", "MAX_RESTARTS": "9"}
# [worker, fit, step, whether its disk is lost]. Each start of the script carries out one kill.
KILLS = [[0, 0, 12, True], [1, 3, 70, True]]
STOPPED_EARLY = 30
# A step that each fit surely reaches.
LAST_STEPS = [40, 40, 54, 118, 42, 40, 38]
RANDOM_KILLS_OF_A_FIT = 2
# The fits whose data come in batches, and the number of batches in a pass.
READ_AGAIN = {1: 7, 3: 40, 6: math.inf}


def random_kills(seed):
    """Return kills of either worker at random steps of each fit. Half of them lose the disk."""
    chance = random.Random(seed)
    return [
        [chance.randrange(2), fit, step, chance.random() < 0.5]
        for fit, last in enumerate(LAST_STEPS)
        for step in sorted(chance.sample(range(1, last), RANDOM_KILLS_OF_A_FIT))
    ]


WAYS = {
    "tensorflow": {"TRAINER_COLLECTIVES": "tensorflow"},
    "ring": {"TRAINER_COLLECTIVES": "ring"},
    "rounds": {"TRAINER_COLLECTIVES": "ring", "TRAINER_SYNC_EVERY": "4"},
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("tensorflow", marks=pytest.mark.long),
        "ring",
        pytest.param("rounds", marks=pytest.mark.long),
    ],
)
def runs(request, workbench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    settings = SETTINGS | WAYS[request.param]
    killed = settings | {"KILLS": json.dumps(KILLS)}
    cases = [Case("undisturbed", 2, settings, SCRIPT), Case("killed", 2, killed, SCRIPT)]
    return run_cases(workbench, folder, cases, [f"{WORKSPACE}:/scripts:ro"])


@pytest.fixture
def kept(workbench, tmp_path):
    """Run the script to its end, with kills; return the run."""

    def run(name, kills):
        given = SETTINGS | {"KILLS": json.dumps(kills), "MAX_RESTARTS": "40"}
        case = Case(name, 2, given, SCRIPT)
        return run_cases(workbench, tmp_path, [case], [f"{WORKSPACE}:/scripts:ro"])[name]

    return run


def ends(run):
    return [json.loads((run.folder / f"end-{index}.json").read_text()) for index in range(2)]


def test_all_kills_have_happened(runs):
    assert (runs["killed"].folder / "starts").read_text() == str(len(KILLS)), runs["killed"].output
    assert runs["killed"].output.count("killed by SIGKILL") == len(KILLS)


def test_the_weights_are_those_of_the_undisturbed_run(runs):
    """They are equal bit for bit on both workers, although random layers and noise take part."""
    digests = [end[0] for run in runs.values() for end in ends(run)]
    assert len(digests) == 4
    assert len(set(digests)) == 1, runs["killed"].output


def test_fit_returns_the_undisturbed_history(runs):
    """It has every epoch, even those before a kill. EarlyStopping ends in the same epoch."""
    expected = ends(runs["undisturbed"])[0][1]
    assert 2 < len(expected[0]["loss"]) < STOPPED_EARLY
    for run in runs.values():
        for _, histories in ends(run):
            for found, wanted in zip(histories, expected, strict=True):
                assert found.keys() == wanted.keys()
                for name, numbers in wanted.items():
                    assert found[name] == pytest.approx(numbers, rel=1e-6), name


def test_a_fit_that_had_ended_is_not_trained_again(runs):
    assert "fit 1: had ended after" in runs["killed"].output
    assert "fit 4: resuming from step" in runs["killed"].output
    assert "had ended" not in runs["undisturbed"].output


def resumed(run, fit):
    """Return the step, the batch and the pass at which a fit resumed, for each worker."""
    said = rf" fit {fit + 1}: resuming from step (\d+) .*\n"  # and then no line of another fit
    said += r"(?:(?!.* fit \d+: ).*\n)*?.* the data continue with batch (\d+) of pass (\d+)"
    return [tuple(map(int, found)) for found in re.findall(said, run.output)]


def assert_next_batches(places, batches):
    """Check that each fit resumed with the next batch, where a pass has `batches` batches."""
    for step, batch, number in places:
        assert (number - 1, batch - 1) == (step // batches, step % batches), places


def test_a_dataset_is_read_on_with_the_batch_that_comes_next(runs):
    places = resumed(runs["killed"], 3)
    assert len(places) == 2, runs["killed"].output
    assert_next_batches(places, READ_AGAIN[3])
    assert "the data continue" not in runs["undisturbed"].output


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_fit_leaves_every_epoch_once_on_the_chief_alone(runs):
    """One kill takes the chief's disk. The records that the chief had on it come back."""
    expected = ends(runs["undisturbed"])[0][1]
    for run in runs.values():
        for index, history in enumerate(expected):
            found = lines(run.folder / f"worker-0/fit-{index + 1}/metrics.jsonl")
            epochs = len(next(iter(history.values())))
            assert [line["epoch"] for line in found] == [*range(1, epochs + 1)]
            about = json.loads((run.folder / f"worker-0/fit-{index + 1}/about.json").read_text())
            assert (about["workers"], about["replicas"]) == (2, 2)
            for name in {"loss", "total"} & history.keys():
                values = [line[name] for line in found]
                assert values == pytest.approx(history[name], rel=1e-6)
        assert not [*run.folder.glob("worker-1/fit-*/metrics.jsonl")]
        assert not [*run.folder.glob("worker-1/fit-*/about.json")]
        assert not [*run.folder.glob("worker-1/fit-*/tensorboard/t*")]


def test_each_worker_leaves_its_speed_and_its_journal(runs):
    for run in runs.values():
        for worker in ("worker-0", "worker-1"):
            assert [*(run.folder / worker).glob("fit-4/tensorboard/events.out.tfevents.*")]
            events = lines(run.folder / worker / "events.jsonl")
            assert "fit-4" in {one.get("fit") for one in events}
            assert events[-1]["state"] == "done"


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_steps_change_nothing(kept, seed):
    kills = random_kills(seed)
    killed, undisturbed = kept("killed", kills), kept("undisturbed", [])
    for fit, batches in READ_AGAIN.items():
        places = resumed(killed, fit)
        assert places, killed.output
        assert_next_batches(places, batches)
    assert (killed.folder / "starts").read_text() == str(len(kills)), killed.output
    assert {end[0] for end in ends(killed)} == {end[0] for end in ends(undisturbed)}
    (found, wanted) = (ends(run)[0][1] for run in (killed, undisturbed))
    for history, expected in zip(found, wanted, strict=True):
        assert history == {name: pytest.approx(values) for name, values in expected.items()}

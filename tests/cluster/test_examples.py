"""The examples that are plain Keras programs give the same results on two workers as on one."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from harness.loopback import Case, run_cases

EXAMPLES = Path(__file__).parents[2] / "examples"
LOSS = re.compile(r" - loss: ([\d.]+)")
ALL_LOSSES = re.compile(r"loss: ([\d.]+)")
FIRST_WORDS = "In the evening, "
WORKERS = [1, 2]
SETTINGS = {"TF_NUM_INTRAOP_THREADS": "1", "MAX_RESTARTS": "0"}
ALONE = {"TF_NUM_INTRAOP_THREADS": "2", "MAX_RESTARTS": "0", "CLUSTER_SOURCE": "none"}
NAMES = ["language-model", "two-outputs", "custom-train-step"]
# test_keras_fit.py runs similar programs.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def runs(workbench, tmp_path_factory):
    """Return an example's runs by the number of workers: one without TF_CONFIG, and two."""

    @cache
    def of(name):
        command = ["python", f"/examples/{name}/train.py"]
        cases = [Case("1", 1, ALONE, command), Case("2", 2, SETTINGS, command)]
        folder = tmp_path_factory.mktemp(name)
        ended = run_cases(workbench, folder, cases, [f"{EXAMPLES}:/examples:ro"])
        return {int(number): run.raise_unless_done() for number, run in ended.items()}

    return of


def losses(run, pattern=LOSS):
    """Return the losses that the chief printed."""
    said = (run.folder / "output-0.log").read_text()
    found = [float(text) for text in pattern.findall(said)]
    assert found, run.output
    return found


@pytest.mark.parametrize("name", ["language-model", "two-outputs"])
def test_two_workers_train_as_one_does(runs, name):
    """The losses agree in every epoch, and in its validation."""
    alone, two = (losses(runs(name)[workers], ALL_LOSSES) for workers in WORKERS)
    assert two == pytest.approx(alone, rel=1e-3)


def test_two_workers_learn_as_well_as_one_where_each_draws_noise_of_its_own(runs):
    alone, two = (losses(runs("custom-train-step")[workers]) for workers in WORKERS)
    assert len(two) == len(alone)
    assert two[0] == pytest.approx(alone[0], rel=0.01)
    assert two[-1] == pytest.approx(alone[-1], rel=0.1)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", NAMES)
def test_it_learns(runs, name, workers):
    first, *_, last = losses(runs(name)[workers])
    assert last < 0.7 * first


@pytest.mark.parametrize("workers", WORKERS)
def test_the_language_model_writes_once(runs, workers):
    lines = runs("language-model")[workers].output.splitlines()
    (text,) = (line for line in lines if line.startswith(FIRST_WORDS))
    assert len(text.split()) > 40
    assert "[UNK]" not in text


@pytest.mark.parametrize("workers", WORKERS)
def test_two_outputs_goes_back_to_its_best_epoch(runs, workers):
    run = runs("two-outputs")[workers]
    lines = [*csv.DictReader((run.folder / "history.csv").open())]
    assert [int(line["epoch"]) for line in lines] == list(range(len(lines)))
    best = min(lines, key=lambda line: float(line["val_loss"]))
    assert float(best["val_larger_auc"]) > 0.95
    (end,) = re.findall(r", loss ([\d.]+),", run.output)
    assert float(end) == pytest.approx(float(best["val_loss"]), abs=1e-4)


FILES = [
    ("two-outputs", {"best.keras", "history.csv"}),
    ("custom-train-step", {"digits.png"}),
]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(("name", "files"), FILES)
def test_files_are_there_once(runs, name, files, workers):
    run = runs(name)[workers]
    ours = {"codes.json", *(f"output-{index}.log" for index in range(workers))}
    found = {file.name for file in run.folder.iterdir() if file.is_file()}
    assert found - ours == files


@pytest.mark.parametrize("workers", WORKERS)
def test_the_digits_are_drawn_once(runs, workers):
    run = runs("custom-train-step")[workers]
    assert (run.folder / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert run.output.count("drawn: ") == 1

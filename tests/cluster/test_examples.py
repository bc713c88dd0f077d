"""The examples that are plain Keras programs end on two workers as on one.

All of them run one after the other in the same processes, of which each is a worker.
"""

import csv
import re
from pathlib import Path

import pytest

from harness.loopback import Case, run_cases

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["language-model", "two-outputs", "custom-train-step"]
# The third one's noise is drawn by each replica for itself.
ALIKE = ["language-model", "two-outputs"]
WORKERS = [1, 2]
LOSS = re.compile(r" - loss: ([\d.]+)")
ALL_LOSSES = re.compile(r"loss: ([\d.]+)")
SCRIPT = "/examples/{}/train.py"
FIRST_WORDS = "In the evening, "
SETTINGS = {"TF_NUM_INTRAOP_THREADS": "1", "MAX_RESTARTS": "0"}
ALONE = {"TF_NUM_INTRAOP_THREADS": "2", "MAX_RESTARTS": "0", "CLUSTER_SOURCE": "none"}
# A process has one strategy: TensorFlow would count the collectives of a second one as the first's.
PROGRAM = """
import os, runpy, sys
import tensorflow as tf

kind = tf.distribute.MultiWorkerMirroredStrategy
strategy = kind()
kind.__new__, kind.__init__ = lambda _: strategy, lambda _: None
for script in sys.argv[1:]:
    print(script, flush=True)
    sys.argv, sys.path[0] = [script], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def runs(workbench, tmp_path_factory):
    """All examples on one worker without TF_CONFIG, and on two, by their number."""
    command = ["python", "-c", PROGRAM, *map(SCRIPT.format, NAMES)]
    cases = [Case("1", 1, ALONE, command), Case("2", 2, SETTINGS, command)]
    folder = tmp_path_factory.mktemp("examples")
    ended = run_cases(workbench, folder, cases, [f"{EXAMPLES}:/examples:ro"])
    return {int(name): run.raise_unless_done() for name, run in ended.items()}


def said(run, name):
    """Return what an example has printed on the chief."""
    output = (run.folder / "output-0.log").read_text()
    return output.partition(SCRIPT.format(name))[2].partition("\n/examples/")[0]


def losses(run, name, pattern=LOSS):
    found = [float(text) for text in pattern.findall(said(run, name))]
    assert found, run.output
    return found


@pytest.mark.parametrize("name", ALIKE)
def test_two_workers_train_as_one_does(runs, name):
    """In each epoch, and in its validation."""
    alone, two = (losses(runs[workers], name, ALL_LOSSES) for workers in WORKERS)
    assert two == pytest.approx(alone, rel=1e-3)


def test_two_workers_learn_as_well_as_one_where_each_draws_noise_of_its_own(runs):
    alone, two = (losses(runs[workers], "custom-train-step") for workers in WORKERS)
    assert len(two) == len(alone)
    assert two[0] == pytest.approx(alone[0], rel=0.01)
    assert two[-1] == pytest.approx(alone[-1], rel=0.1)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", NAMES)
def test_it_learns(runs, name, workers):
    first, *_, last = losses(runs[workers], name)
    assert last < 0.7 * first


@pytest.mark.parametrize("workers", WORKERS)
def test_the_language_model_writes_once(runs, workers):
    lines = runs[workers].output.splitlines()
    (text,) = (line for line in lines if line.startswith(FIRST_WORDS))
    assert len(text.split()) > 40
    assert "[UNK]" not in text


@pytest.mark.parametrize("workers", WORKERS)
def test_two_outputs_goes_back_to_its_best_epoch(runs, workers):
    lines = [*csv.DictReader((runs[workers].folder / "history.csv").open())]
    assert [int(line["epoch"]) for line in lines] == list(range(len(lines)))
    best = min(lines, key=lambda line: float(line["val_loss"]))
    assert float(best["val_larger_auc"]) > 0.95
    (end,) = re.findall(r", loss ([\d.]+),", runs[workers].output)
    assert float(end) == pytest.approx(float(best["val_loss"]), abs=1e-4)


@pytest.mark.parametrize("workers", WORKERS)
def test_files_are_there_once(runs, workers):
    ours = {"codes.json", *(f"output-{index}.log" for index in range(workers))}
    files = {file.name for file in runs[workers].folder.iterdir() if file.is_file()}
    assert files - ours == {"best.keras", "history.csv", "digits.png"}
    assert (runs[workers].folder / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert runs[workers].output.count("drawn: ") == 1

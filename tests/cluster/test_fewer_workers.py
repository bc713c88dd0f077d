"""With MIN_WORKERS, two of three workers continue without a killed worker, and take it back later.

The trainer runs in containers, as in the chaos tests. But meanwhile each worker's share of a batch
is larger, so the weights are those of an undisturbed run only up to rounding.
"""

import json
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from harness.chaos.reference import result_of
from harness.chaos.run import Settings, assembled

pytestmark = pytest.mark.long

SETTINGS = Settings(epochs=2, steps_per_epoch=120, checkpoint_steps=25)
FEWER = {"MIN_WORKERS": "2", "REGROUP_SECONDS": "1"}
A_STEP = 60
# SLOWLY lasts until the lost worker is back, which takes longer than all steps would.
SLOWLY, STEP_SECONDS, FULL_SPEED = 0.2, 0.02, 0.0
CHIEF, WORKER, LOST = range(3)


@pytest.fixture(scope="module")
def undisturbed(workbench, tmp_path_factory):
    with assembled(workbench, tmp_path_factory.mktemp("undisturbed"), SETTINGS) as run:
        run.boot(FULL_SPEED)
        assert run.wait_for_end() == [0, 0, 0], run.logs()
        return SimpleNamespace(weights=trained(run.machines[CHIEF]), examples=examples(run))


@pytest.fixture(scope="module")
def run(workbench, tmp_path_factory):
    """Kill a worker, and start it again once the others continue without it."""
    folder, options = tmp_path_factory.mktemp("fewer"), dict.fromkeys(range(3), FEWER)
    with assembled(workbench, folder, SETTINGS, options) as run:
        run.boot(STEP_SECONDS)
        run.wait_for_step(A_STEP)
        run.set_pace(SLOWLY)
        run.kill(LOST)
        run.wait_for_line(CHIEF, "continuing with 2 of 3 workers (worker-2 is missing)")
        run.come_back(LOST)
        run.wait_for_line(CHIEF, "all 3 workers are here again")
        run.set_pace(FULL_SPEED)
        assert run.wait_for_end() == [0, 0, 0], run.logs()
        yield run


def trained(machine):
    """Return the model's variables in a worker's last checkpoint."""
    with np.load(machine.checkpoints()[-1]) as members:
        names = json.loads(members["about"].tobytes())["names"]
        arrays = {name: members[f"variable_{place:05d}"] for place, name in enumerate(names)}
    found = {name: array for name, array in arrays.items() if "kernel" in name or "bias" in name}
    assert found, list(arrays)
    return found


def examples(run):
    """Return the numbers of the examples of each step, over all workers."""
    steps = defaultdict(set)
    for machine in run.machines:
        for process in machine.processes():
            for step, batch in enumerate(process.batches, process.first_step or 0):
                steps[step] |= set(batch.ids)
    return steps


def test_the_survivors_keep_their_processes_and_take_the_lost_one_in(run):
    for survivor in (CHIEF, WORKER):
        assert "restart 1 of" not in run.machines[survivor].log(), run.logs()
    said = run.machines[CHIEF].log()
    assert "worker-2 is back: it joins after step" in said, run.logs()


def test_every_worker_ends_with_the_same_weights(run):
    assert len({result_of(machine)["weights_sha256"] for machine in run.machines}) == 1


def test_the_weights_are_those_of_an_undisturbed_run_but_for_rounding(run, undisturbed):
    expected, found = undisturbed.weights, trained(run.machines[CHIEF])
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


def test_each_step_has_the_examples_of_the_undisturbed_run(run, undisturbed):
    assert examples(run) == undisturbed.examples

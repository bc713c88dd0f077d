"""Scripts without tf.distribute train on several workers, which sum over a ring."""

import json
from functools import cache
from pathlib import Path

import pytest

from harness.loopback import Case, run_cases

WORKSPACE = Path(__file__).parent / "workspace"
RING = {"TRAINER_COLLECTIVES": "ring", "TRAINER_CHECKPOINT_STEPS": "5", "MAX_RESTARTS": "0"}
SCRIPTS = ["regression", "pictures", "language", "by_hand"]
WORKERS = [2, pytest.param(3, marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def run_on(workbench, tmp_path_factory):
    """Run the scripts one after the other on `count` workers."""

    @cache
    def run(count):
        case = Case(f"{count}", count, RING, ("python", "/scripts/plain"))
        folder = tmp_path_factory.mktemp("ring")
        ended = run_cases(workbench, folder, [case], [f"{WORKSPACE}:/scripts:ro"])
        return ended[case.name].raise_unless_done()

    return run


def results(run):
    """Return the numbers that each script printed on each worker."""
    found = {name: [] for name in SCRIPTS}
    for line in run.output.splitlines():
        if line.startswith("RESULT "):
            result = json.loads(line.removeprefix("RESULT "))
            found[result["of"]].append(result["numbers"])
    return found


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("workers", WORKERS)
def test_a_plain_script_ends_as_on_one_machine(run_on, script, workers):
    (alone,) = results(run_on(1))[script]
    together = results(run_on(workers))[script]
    assert together == [together[0]] * workers
    assert together[0] == pytest.approx(alone, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("workers", WORKERS)
def test_the_workers_are_a_ring(run_on, workers):
    assert run_on(workers).output.count(f"up: ring of {workers} workers") == workers
    assert "trains on this worker alone" not in run_on(workers).output


@pytest.fixture(scope="module")
def without_fit(workbench, tmp_path_factory):
    """Run two workers of a script that never calls `fit`; return their output and exit codes."""

    @cache
    def run(what):
        case = Case(what, 2, RING, ("python", "/scripts/without_fit.py", what))
        folder = tmp_path_factory.mktemp("without_fit")
        ended = run_cases(workbench, folder, [case], [f"{WORKSPACE}:/scripts:ro"])[what]
        return ended.output, json.loads((ended.folder / "codes.json").read_text())

    return run


@pytest.fixture
def ended_well(without_fit):
    """The last worker's observations of the other worker, while both are in a ring."""
    output, codes = without_fit("well")
    assert codes == [0, 0], output
    (result,) = [line for line in output.splitlines() if line.startswith("RESULT ")]
    return json.loads(result.removeprefix("RESULT "))


def test_a_script_without_a_fit_does_not_end_before_the_other_workers(ended_well):
    assert ended_well["is_there"]


def test_nobody_can_connect_to_a_worker_that_is_in_a_ring(ended_well):
    assert ended_well["knocked"] == ["ECONNREFUSED"] * 2


@pytest.mark.long  # tests/inside/test_script_calls.py loses a peer in each such call
def test_a_peer_that_is_lost_outside_of_a_fit_is_worth_another_start(without_fit):
    output, codes = without_fit("lost")
    assert codes == [75, 137], output
    assert "a peer was lost (PeerLost: rank 1" in output


@pytest.mark.long  # tests/inside/test_over_ring.py has workers at different calls
def test_a_call_of_the_chief_alone_ends_all_and_is_named(without_fit):
    output, codes = without_fit("chief-predicts")
    assert codes == [78, 78], output
    said = [line for line in output.splitlines() if "failed: out of step" in line]
    assert len(said) == 2, output
    assert all("at predict (" in line and "at evaluate (" in line for line in said)

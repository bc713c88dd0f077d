"""How a part is judged, and when it is tried."""

import pytest

from cluster_trainer.selftest.part import Part, WrongError, judged, run_part
from cluster_trainer.selftest.parts import Place, parts_of
from cluster_trainer.selftest.running import Outcome
from cluster_trainer.selftest.table import Row, State


def found(facts):
    if facts["sum"] != 2:
        raise WrongError("the sum is wrong")
    return "two"


PART = Part(name="sum", command=["true"], found=found, advice="Mend it.")


class Bench:
    """Records how parts are run, and gives all of them the same outcome."""

    limit_seconds = 7.0

    def __init__(self, outcome):
        self.outcome, self.runs = outcome, []

    def run(self, name, command, settings, limit_seconds, *, shows):
        self.runs.append((name, command, settings, limit_seconds, shows))
        return self.outcome


WELL = Outcome(0, 1.0, facts={"sum": 2})


@pytest.mark.parametrize(
    ("outcome", "state", "text"),
    [
        (WELL, State.HELD, "two"),
        (Outcome(0, 1.0, facts={"sum": 3}), State.FAILED, "the sum is wrong"),
        (Outcome(0, 1.0), State.FAILED, "lacks 'sum'"),
        (Outcome(None, 7.0), State.FAILED, "within 7 s"),
        (Outcome(139, 1.0, reason="killed by SIGSEGV"), State.FAILED, "killed by SIGSEGV"),
        (Outcome(139, 1.0), State.FAILED, "exit code 139"),
    ],
)
def test_each_end_is_a_row(outcome, state, text):
    row = judged(PART, outcome, 7.0)
    assert row.state == state
    assert text in row.found


def test_only_a_failure_shows_its_log():
    assert judged(PART, Outcome(0, 1.0, log="words", facts={"sum": 2}), 7.0).log == ""
    assert judged(PART, Outcome(1, 1.0, log="words"), 7.0).log == "words"


@pytest.mark.parametrize(
    "changed", [{"why_not": "it takes two GPUs"}, {"needs": ["before"]}, {"needs": ["other"]}]
)
def test_a_part_that_cannot_be_tried_is_not_run(changed):
    part, bench = Part(**{**vars(PART), **changed}), Bench(WELL)
    before = [Row(name="before", state=State.FAILED, found="")]
    assert run_part(bench, part, before).state == State.NOT_TRIED
    assert bench.runs == []


def test_a_part_is_run_after_those_that_it_needs():
    part, bench = Part(**{**vars(PART), "needs": ["before"]}), Bench(WELL)
    before = [Row(name="before", state=State.HELD, found="")]
    assert run_part(bench, part, before).state == State.HELD
    assert bench.runs == [("sum", ["true"], {"CLUSTER_SOURCE": "none"}, 7.0, False)]


def test_machines_that_meet_have_time_to_wait():
    part, bench = Part(**{**vars(PART), "meets": True}), Bench(WELL)
    run_part(bench, part)
    assert bench.runs == [("sum", ["true"], {"RENDEZVOUS_TIMEOUT": "7"}, 14.0, False)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_what_cannot_be_tried_says_why(tmp_path, workers, gpus):
    parts = {part.name: part.why_not for part in parts_of(Place(gpus, workers, tmp_path))}
    lacks_gpus = {"NCCL between GPUs": gpus < 2, "all devices": gpus == 1}
    lacks_machines = {
        "NCCL between machines": workers == 1 or not gpus,
        "machines over a ring": workers == 1,
        "machines over TensorFlow": workers == 1,
    }
    always = {"one device": False, "kill and resume": False}
    expected = lacks_gpus | lacks_machines | always
    assert {name: bool(why) for name, why in parts.items()} == expected


TRAINED = {
    "replicas": 4,
    "digests": [5, 5],
    "difference": 1e-6,
    "examples_per_second": 1000.0,
    "restarts": [0, 1],
    "first_epochs": [0, 1],
}


@pytest.mark.parametrize(
    ("name", "changed", "is_well"),
    [
        ("machines over a ring", {}, True),
        ("machines over a ring", {"replicas": 2}, False),
        ("machines over a ring", {"digests": [5, 6]}, False),
        ("machines over a ring", {"difference": 0.01}, False),
        ("machines over a ring", {"difference": float("nan")}, False),
        ("machines over TensorFlow", {"replicas": 1}, False),
        ("kill and resume", {}, True),
        ("kill and resume", {"restarts": [0, 0]}, False),
        ("kill and resume", {"first_epochs": [0, 0]}, False),
        ("kill and resume", {"difference": 0.01}, False),
    ],
)
def test_machines_must_agree_with_one_device(tmp_path, name, changed, is_well):
    parts = {part.name: part for part in parts_of(Place(2, 2, tmp_path))}
    row = judged(parts[name], Outcome(0, 1.0, facts=TRAINED | changed), 7.0)
    assert row.state == (State.HELD if is_well else State.FAILED)


@pytest.mark.parametrize(("total", "state"), [(4.0, State.HELD), (2.0, State.FAILED)])
def test_a_sum_over_all_gpus_must_be_right(tmp_path, total, state):
    parts = {part.name: part for part in parts_of(Place(2, 2, tmp_path))}
    facts = {"sum": total, "megabytes": 64.0, "seconds": 0.01}
    assert judged(parts["NCCL between machines"], Outcome(0, 1.0, facts=facts), 7.0).state == state

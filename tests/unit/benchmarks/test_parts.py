"""The parts of a step's time, computed from the records of two workers."""

import json

import pytest

from benchmarks.clusters.parts import Parts, lines, medians, parts_of

FIRST = {"all": 9.0, "first_call": 8.0}
SECOND = [
    {"all": 2.0, "calls": 1.9, "input": 0.1, "sums": 0.5},
    {"all": 2.0, "calls": 1.9, "input": 0.1, "sums": 0.9},
]


@pytest.fixture
def workers(tmp_path):
    found = []
    for index, seconds in enumerate(SECOND):
        folder = tmp_path / f"worker-{index}"
        folder.mkdir()
        events = [{"state": "training"}, *({"seconds": one} for one in (FIRST, seconds, seconds))]
        (folder / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
        found.append(folder)
    return found


def test_the_sums_are_those_of_the_worker_that_waits_the_least(workers):
    found = parts_of(workers, steps=100)
    assert found == Parts(
        step=pytest.approx(20),
        computing=pytest.approx(11),
        input=pytest.approx(1),
        sums=pytest.approx(5),
        waiting=pytest.approx(2),
        between=pytest.approx(1),
    )
    assert found.computing + found.input + found.sums + found.waiting + found.between == (
        pytest.approx(found.step)
    )


def test_what_no_worker_tells_is_not_there(tmp_path):
    assert parts_of([tmp_path], steps=100) is None


def test_a_line_has_the_medians_of_the_rounds():
    rounds = [Parts(*[number] * 6) for number in (1.0, 5.0, 3.0)]
    assert medians(rounds).step == 3
    assert lines({"ring": rounds})[-1].startswith("| ring | 3.00 ms |")

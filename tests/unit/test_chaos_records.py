"""The check of the chaos tests finds every kind of error."""

import json

import pytest

from harness.chaos.records import Batch, Process, lost_steps, problems, read_processes

REFERENCE = [(step, 10 + step) for step in range(8)]
MOST_LOST = 2


def process(first_step, *steps):
    return Process(0.0, first_step, [Batch(0.0, REFERENCE[step]) for step in steps])


def test_an_undisturbed_worker_has_no_problems():
    assert problems([process(0, *range(8))], REFERENCE, MOST_LOST) == []


def test_steps_may_be_done_again_after_a_restart():
    restarted = [process(0, 0, 1, 2, 3), process(2, 2, 3, 4), process(4, 4, 5, 6, 7)]
    assert problems(restarted, REFERENCE, MOST_LOST) == []
    assert lost_steps(restarted) == [2, 1]


def test_a_process_that_ended_before_it_began_to_train_counts_for_nothing():
    restarted = [process(0, 0, 1, 2, 3), process(None), process(4, 4, 5, 6, 7)]
    assert problems(restarted, REFERENCE, MOST_LOST) == []
    assert lost_steps(restarted) == [0]


@pytest.mark.parametrize(
    ("processes", "problem"),
    [
        (
            [process(0, 0, 1, 2, 3), process(5, 5, 6, 7)],
            "process 1 left out steps 4 to 4",
        ),
        (
            [process(0, 0, 1, 2, 3), process(1, *range(1, 8))],
            "process 1 lost 3 steps, more than 2",
        ),
        (
            [process(0, 0, 1, 2, 3), process(1), process(1, *range(1, 8))],
            "process 1 lost 3 steps, more than 2",
        ),
        (
            [process(0, 0, 1, 2, 2, 4, 5, 6, 7)],
            "process 0 trained on other batches than those from step 0",
        ),
        (
            [process(0, 0, 1, 2, 4, 5, 6, 7)],
            "process 0 trained on other batches than those from step 0",
        ),
        (
            [process(0, *range(8)), process(None, 0)],
            "process 1 trained and did not say from which step",
        ),
        ([process(0, *range(7))], "the last process ended after 7 of 8 steps"),
        ([], "the last process ended after 0 of 8 steps"),
    ],
    ids=[
        "left-out",
        "lost-too-much",
        "lost-too-much-before-a-batch",
        "twice",
        "skipped",
        "untold",
        "too-early",
        "none",
    ],
)
def test_sees_what_is_wrong(processes, problem):
    assert problem in problems(processes, REFERENCE, MOST_LOST)


def test_reads_what_the_saboteur_writes(tmp_path):
    records = tmp_path / "records.jsonl"
    lines = [
        {"time": 1.0, "event": "start"},
        {"time": 2.0, "event": "log", "text": "no checkpoint on any worker: starting at step 0"},
        {"time": 3.0, "event": "batch", "ids": [5, 6]},
        {"time": 4.0, "event": "end"},
        {"time": 5.0, "event": "start"},
        {"time": 6.0, "event": "log", "text": "resuming from step 1 held by worker-2"},
        {"time": 7.0, "event": "log", "text": "epoch 1/2"},
        {"time": 8.0, "event": "start"},
    ]
    records.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert read_processes(records) == [
        Process(1.0, 0, [Batch(3.0, (5, 6))], 4.0),
        Process(5.0, 1),
        Process(8.0),
    ]

"""The incidents since a run last trained, read from events.jsonl."""

from cluster_trainer.results.incidents import Happening, happenings


def at(time, state, detail=""):
    return {"time": float(time), "state": state, "detail": detail}


def test_a_wait_lasts_until_another_state_and_names_the_last_workers_that_were_missing():
    events = [
        at(0, "starting"),
        at(1, "waiting", "for 2 of 3 workers"),
        at(3, "waiting", "waiting for 2 of 3 workers: worker-1: refused; worker-2: refused"),
        at(9, "waiting", "waiting for 1 of 3 workers for 8 s: worker-2: refused"),
        at(12, "waiting", "3 workers are here and agree (11.0 s)"),
        at(12.5, "starting"),
    ]
    said = "waiting for 1 of 3 workers for 8 s: worker-2: refused"
    assert happenings(events) == [Happening(1, "waited 11.5 s at the gate", said)]


def test_what_came_before_the_last_training_is_told_no_more():
    first = [at(0, "waiting", "for 1 of 2 workers"), at(1, "starting"), at(2, "training")]
    second = [at(7, "failed", "killed"), at(8, "restarting", "in 1 s: exit code 137")]
    assert happenings([*first, *second, at(9, "starting")]) == [
        Happening(7, "failed", "killed"),
        Happening(8, "restarting", "in 1 s: exit code 137"),
    ]


def test_lines_without_a_state_and_a_wait_that_goes_on_tell_nothing():
    assert happenings([{"time": 1.0, "seconds": {}}, at(2, "waiting")]) == []
    assert happenings([]) == []

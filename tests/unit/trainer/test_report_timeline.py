"""The timeline of a worker in a report, made from its events."""

from cluster_trainer.report.timeline import (
    Mark,
    Span,
    epoch_seconds,
    line_of,
    network_limit,
    network_marks,
    waits_for_others,
)

ENTRYPOINT = {"by": "entrypoint", "restarts": 0}


def at(time, state, detail="", **more):
    return {"time": float(time), "state": state, "detail": detail, **more}


def kinds(line):
    return [(mark.kind, mark.time) for mark in line.marks]


def test_each_state_lasts_until_the_next():
    line = line_of(
        [
            at(0, "starting", **ENTRYPOINT),
            at(1, "waiting", "for 1 of 2 workers", **ENTRYPOINT),
            at(4, "waiting", "2 workers are here and agree", **ENTRYPOINT),
            at(4, "starting", **ENTRYPOINT),
            at(9, "training"),
            at(20, "done"),
        ]
    )
    assert line.spans == [
        Span(0, 1, "starting"),
        Span(1, 4, "waiting"),
        Span(4, 9, "starting"),
        Span(9, 20, "training"),
    ]
    assert kinds(line) == [("done", 20)]
    assert line.seconds("starting") == 6


def test_a_crash_is_marked_with_its_reason_and_the_resume_with_its_step():
    line = line_of(
        [
            at(0, "training"),
            at(7, "failed", "killed"),
            at(8, "restarting", "in 1 s: exit code 137", by="entrypoint", restarts=1),
            at(9, "starting", **ENTRYPOINT | {"restarts": 1}),
            at(12, "starting", "compiling the steps; from step 20 held by worker-0"),
            at(13, "training"),
            at(30, "done"),
        ]
    )
    assert line.marks == [
        Mark(7, "failed", "killed"),
        Mark(8, "restarting", "in 1 s: exit code 137"),
        Mark(12, "resumed", "resumed from step 20 held by worker-0"),
        Mark(30, "done", "done"),
    ]
    assert Span(8, 9, "restarting") in line.spans
    assert not [span for span in line.spans if span.begin == 7]


def test_a_container_that_was_killed_ended_at_its_last_sign_of_life():
    events = [at(0, "training"), at(60, "starting", **ENTRYPOINT), at(70, "done")]
    line = line_of(events, signs_of_life=[5, 21, 66])
    assert kinds(line) == [("killed", 21), ("done", 70)]
    assert line.spans[0] == Span(0, 21, "training")


def test_of_a_run_without_an_end_the_last_sign_of_life_is_shown():
    line = line_of([at(0, "training")], signs_of_life=[40])
    assert kinds(line) == [("silent", 40)]
    assert line.spans == [Span(0, 40, "training")]


def test_without_events_there_is_nothing():
    line = line_of([], signs_of_life=[1])
    assert (line.spans, line.marks) == ((), ())


def test_very_many_spans_become_few_and_no_time_is_lost():
    events = [at(n / 10, ("training", "evaluating")[n % 2]) for n in range(20_000)]
    line = line_of([*events, at(2000, "done")])
    assert len(line.spans) < 1500
    assert sum(span.seconds for span in line.spans) == 2000


def test_the_seconds_of_epochs_are_added_up():
    lines = [{"time": 1, "seconds": {"calls": 1.5, "all": 2}}, {"time": 2, "seconds": {"all": 1}}]
    assert epoch_seconds([at(0, "training"), *lines]) == {"calls": 1.5, "all": 3}


def epoch(number, **seconds):
    return {"time": 1, "epoch": number, "seconds": seconds}


def test_who_has_more_sums_than_the_least_of_an_epoch_has_waited_for_others():
    quick = [epoch(1, sums=5.0), epoch(2, sums=1.0)]
    other = [epoch(1, sums=2.0), epoch(2, sums=2.5)]
    assert waits_for_others([quick, other]) == [3.0, 1.5]


def test_waits_that_were_not_measured_on_all_workers_are_unknown():
    assert waits_for_others([[epoch(1, sums=5.0)], [epoch(1, calls=5.0)]]) == [None, None]


def test_what_workers_have_waited_is_compared_in_each_epoch_of_each_fit():
    def events(*sums):
        fits = zip(("fit-1", "fit-2"), sums, strict=True)
        return [{"time": 1, "fit": n, "epoch": 1, "seconds": {"sums": one}} for n, one in fits]

    assert waits_for_others([events(5.0, 1.0), events(1.0, 5.0)]) == [4.0, 4.0]


def test_the_network_is_marked_where_it_becomes_the_limit_and_where_it_no_longer_is():
    events = [
        at(0, "training"),
        {"time": 40.0, "network": "sums take 60% of the time"},
        {"time": 70.0, "network": ""},
        {"time": 80.0, "network": None},
    ]
    assert [(mark.time, mark.text) for mark in network_marks(events)] == [
        (40, "sums take 60% of the time"),
        (70, "no longer the limit"),
    ]
    assert kinds(line_of(events)) == [("silent", 0)]  # these are not states of a worker
    assert network_limit(events) == "sums take 60% of the time"
    assert network_limit(events[:1]) == ""

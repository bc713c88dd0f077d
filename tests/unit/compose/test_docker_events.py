"""The engine's events, and the workers' states that follow from them."""

import pytest

from local_cluster.run.docker_events import Event, Failed, Started, Stopped, WorkerStates, parse

TIME = "1795351041850215000"


def event(action, service, code="-", signal="-"):
    return Event(action, service, str(code), str(signal), f"id-of-{service}", TIME)


@pytest.fixture
def workers():
    """Two workers that run."""
    both = WorkerStates(["worker-0", "worker-1"])
    for service in ("worker-0", "worker-1"):
        both.take(event("start", service))
    return both


def test_a_line_is_an_event():
    found = parse(f"die worker-1 137 - abc {TIME}\n")
    assert found == Event("die", "worker-1", "137", "-", "abc", TIME)
    assert found.seconds == "1795351041.850215000"


@pytest.mark.parametrize(
    "line", ["", "die worker-1", f"oom worker-1 - - abc {TIME}", "a b c d e f g"]
)
def test_other_lines_are_none(line):
    assert parse(line) is None


def test_a_worker_that_starts_is_followed_from_its_beginning():
    started = WorkerStates(["worker-0"]).take(event("start", "worker-0"))
    assert started == Started("worker-0", "id-of-worker-0", since="0", again=False)


def test_all_that_end_with_0_are_a_success(workers):
    assert workers.take(event("die", "worker-1", 0)) is None
    assert (workers.running, workers.take(event("die", "worker-0", 0))) == (1, None)
    assert (workers.running, workers.exit_code()) == (0, 0)


def test_one_that_fails_is_the_first_to(workers):
    assert workers.take(event("die", "worker-1", 78)) == Failed(
        "worker-1", 78, "id-of-worker-1", first=True
    )


def test_the_others_wait_for_one_that_was_asked_to_stop(workers):
    workers.take(event("kill", "worker-1", signal=15))
    assert workers.take(event("die", "worker-1", 143)) == Stopped("worker-1", others_wait=True)
    assert workers.running == 1


def test_nobody_waits_where_all_were_asked(workers):
    for service in ("worker-0", "worker-1"):
        workers.take(event("kill", service, signal=15))
    assert workers.take(event("die", "worker-1", 143)) == Stopped("worker-1", others_wait=False)
    workers.take(event("die", "worker-0", 143))
    assert (workers.running, workers.exit_code()) == (0, 143)


def test_another_signal_is_no_request(workers):
    for service in ("worker-0", "worker-1"):
        workers.take(event("kill", service, signal=9))
    assert workers.take(event("die", "worker-1", 143)).others_wait


def test_one_that_comes_back_is_followed_from_where_it_ended(workers):
    workers.take(event("die", "worker-1", 143))
    again = workers.take(event("start", "worker-1"))
    assert again == Started("worker-1", "id-of-worker-1", "1795351041.850215000", again=True)
    assert workers.running == 2
    assert workers.take(event("die", "worker-1", 137)).first
    assert workers.take(event("die", "worker-0", 0)) is None


def test_one_that_is_being_started_again_counts_as_running_once(workers):
    workers.take(event("die", "worker-1", 137))
    workers.comes_back("worker-1")
    assert (workers.running, workers.missing()) == (2, ["worker-1"])
    assert workers.take(event("start", "worker-1")).again
    assert (workers.running, workers.missing()) == (2, [])
    workers.take(event("die", "worker-1", 0))
    workers.take(event("die", "worker-0", 0))
    assert workers.running == 0


def test_who_was_killed_is_known_until_it_is_started_again(workers):
    assert not workers.was_killed("worker-1")
    workers.take(event("kill", "worker-1", signal=9))
    workers.take(event("die", "worker-1", 137))
    assert workers.was_killed("worker-1")
    workers.take(event("start", "worker-1"))
    workers.take(event("die", "worker-1", 137))  # the entrypoint's own exit code
    assert not workers.was_killed("worker-1")


def test_who_was_asked_to_stop_and_is_killed_then_was_not_killed(workers):
    workers.take(event("kill", "worker-1", signal=15))
    workers.take(event("kill", "worker-1", signal=9))
    workers.take(event("die", "worker-1", 137))
    assert not workers.was_killed("worker-1")


def test_one_that_fails_after_another_was_stopped_is_not_the_first(workers):
    workers.take(event("die", "worker-1", 143))
    assert not workers.take(event("die", "worker-0", 75)).first


def test_other_services_are_none_of_ours(workers):
    assert workers.take(event("die", "run-folder", 0)) is None
    assert workers.running == 2


def test_one_that_fails_after_another_was_killed_and_came_back_is_not_the_first(workers):
    workers.take(event("kill", "worker-1", signal=9))
    assert workers.take(event("die", "worker-1", 137)).first
    workers.comes_back("worker-1")
    workers.take(event("start", "worker-1"))
    assert not workers.take(event("die", "worker-1", 75)).first


def test_one_that_is_done_is_known(workers):
    assert not workers.is_one_done()
    workers.take(event("die", "worker-0", 0))
    assert workers.is_one_done()
    assert not workers.take(event("die", "worker-1", 137)).first

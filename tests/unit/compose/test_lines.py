"""A worker's lines as the screen shows them."""

import pytest

from local_cluster.run.lines import ScreenOptions, Voice, shown


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (b"12:00:01 INFO worker-1 done\n", b"worker-1 | 12:00:01 INFO done\n"),
        (b"12:00:01 INFO worker-10 done\n", b"worker-1 | 12:00:01 INFO worker-10 done\n"),
        (b"12:00:01 INFO worker-0 done\n", b"worker-1 | 12:00:01 INFO worker-0 done\n"),
        (b"  worker-1 said\n", b"worker-1 |   worker-1 said\n"),
        (b"no newline", b"worker-1 | no newline\n"),
        (b"\n", b"worker-1 | \n"),
        (b"\xff\xfe no text\n", b"worker-1 | \xff\xfe no text\n"),
        (
            b"W0000 00:00:1.5 7 gpu.cc:1] no GPU\n",
            b"worker-1 | W0000 00:00:1.5 7 gpu.cc:1] no GPU\n",
        ),
        (b"I am ok\n", b"worker-1 | I am ok\n"),
        (b"I0000 00:00:1795351033.728998      17 port.cc:153] oneDNN\n", None),
        (b"W0000 00:00:1 17 dataset.cc:997] Input of GeneratorDatasetOp::Dataset\n", None),
        (
            b"meta_optimizer.cc:9] remapper failed: INVALID_ARGUMENT: Mutation::Apply error: x\n",
            None,
        ),
        (
            b"E0000 00:00:1 8 meta_optimizer.cc:967] layout failed\n",
            b"worker-1 | E0000 00:00:1 8 meta_optimizer.cc:967] layout failed\n",
        ),
    ],
)
def test_the_name_stands_once_and_notes_are_left_out(line, seen):
    assert shown("worker-1", line) == seen


def heard(*lines, screen=ScreenOptions(), is_chief=False, is_error=False):  # noqa: B008  frozen
    """Return the worker's lines that the screen shows."""
    voice = Voice("worker-1", screen, is_chief=is_chief, is_error=is_error)
    seen = [voice.take(f"{line}\n".encode()) for line in lines]
    return [line.decode().removeprefix("worker-1 | ").rstrip("\n") for line in seen if line]


SAID_BY_ALL = (
    "12:00:01 DEBUG worker-1 epoch 1/3  step 15  loss 1.8",
    "12:00:01 DEBUG worker-1 cluster-trainer 0.1.0: worker-1 of 3 (chief is worker-0 at h:2222)",
    "12:00:01 DEBUG worker-1 3 workers are here and agree (0.0 s)",
)
OF_ITS_OWN = (
    "12:00:01 INFO waiting for 1 of 3 workers: worker-2 at worker-2:2222: no answer",
    "12:00:01 WARNING restart 1 of 3 in 1.0 s",
    "12:00:01 INFO done: results in /runs/a/worker-1",
)


@pytest.mark.parametrize("line", SAID_BY_ALL)
def test_what_the_chief_says_as_well_is_left_out(line):
    assert heard(line) == []
    assert len(heard(line, is_chief=True)) == 1
    assert len(heard(line, screen=ScreenOptions(shows_all=True))) == 1


@pytest.mark.parametrize("line", OF_ITS_OWN)
def test_what_concerns_a_worker_is_shown(line):
    assert heard(line) == [line]


def test_a_scripts_own_lines_are_the_chiefs_and_its_errors_every_workers():
    assert heard("accuracy 0.9") == []
    assert heard("accuracy 0.9", is_chief=True) == ["accuracy 0.9"]
    assert heard("Traceback (most recent call last):", is_error=True) != []


ERROR = "12:00:01 ERROR training failed"
WARNING = "12:00:01 WARNING holds the others up: steps take 40 % longer for it"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    raise ValueError('no')",
    "",
    "ValueError: no",
)


def test_what_follows_an_error_is_shown_until_the_next_line_of_ours():
    after = "12:00:02 DEBUG going on"
    lines = heard("before", ERROR, *TRACEBACK, "more of it", after, *TRACEBACK)
    assert lines == [ERROR, *TRACEBACK, "more of it"]


def test_a_warning_does_not_let_a_scripts_prints_through():
    prints = ("loss 0.2", "  accuracy 0.9", "", "Traceback (most recent call last):", "loss 0.1")
    assert heard(WARNING, *prints) == [WARNING]


def test_lines_that_are_json_are_shown_but_for_what_the_chief_says_as_well():
    line = '{"time": "2026", "level": "%s", "worker": "worker-1", "message": "no"}'
    assert heard(line % "DEBUG") == []
    assert heard(line % "INFO", line % "ERROR") == [line % "INFO", line % "ERROR"]


def test_where_the_run_is_stands_in_the_live_line_or_in_a_line_of_its_own():
    line = "12:00:01 INFO epoch 1/3  training: 5 of 15 steps  loss 1.8"
    assert heard(line, is_chief=True) == [line]
    assert heard(line, is_chief=True, screen=ScreenOptions(draws=True)) == []

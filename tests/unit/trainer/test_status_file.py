"""The trainer's status file, as the entrypoint's `status` reads it."""

import json
import os
import time
from pathlib import Path

import pytest

from cluster_trainer.process.stall import Deadline, StallLimit
from cluster_trainer.results.status_file import StatusFile
from cluster_trainer.settings.job import read_job
from entrypoint.status.board import Board
from entrypoint.status.reading import read_all


@pytest.fixture
def board(tmp_path):
    board = Board.put_up("worker-1", [tmp_path])
    board.note_start("starting", 1)
    return board


@pytest.fixture
def file(board, tmp_path):
    environ = {"TRAINER_RUN_DIR": str(tmp_path)} | board.variables
    return StatusFile(read_job(environ, []).status_file)


def told(board):
    return json.loads(Path(board.variables["STATUS_FILE"]).read_text())


@pytest.fixture
def read(tmp_path):
    return lambda: read_all([tmp_path])[0]


def test_status_shows_the_trainers_own_word(file, read):
    assert (read().state, read().step) == ("starting", None)
    file.tell("training", "epoch 2/9: 5 steps", step=70, epoch=2, epochs=9, within_seconds=60)
    status = read()
    assert (status.state, status.detail) == ("training", "epoch 2/9: 5 steps")
    assert (status.step, status.epoch, status.epochs) == (70, 2, 9)
    assert (status.restarts, status.trouble) == (1, "")
    file.tell("saving", "the trained model")
    assert (read().state, read().step) == ("saving", 70)


def test_a_step_that_is_long_overdue_is_not_healthy(file, read):
    file.tell("training", step=70, within_seconds=-31)
    assert read().trouble == "without a step for 31 s longer than it may take"
    file.tell("training", " is done")
    assert read().trouble == ""


@pytest.fixture
def deadline(board):
    return Deadline.kept_in(Path(board.variables["DEADLINE_FILE"]))


@pytest.mark.parametrize("seconds", [20, "auto"])
def test_a_call_that_is_overdue_is_not_healthy(file, read, deadline, monkeypatch, seconds):
    """Nothing ends the call if the process that watches it is frozen, too."""
    file.tell("training", step=70, within_seconds=600)
    limit, now = StallLimit(deadline, seconds), time.monotonic
    for _ in range(2):
        with limit.call(read):
            assert read().trouble == ""
            monkeypatch.setattr(time, "monotonic", lambda: now() + 95)
            late = read().trouble
            monkeypatch.undo()
    expected = 95 - (60 if seconds == "auto" else 20)
    assert late == f"without a step for {expected} s longer than it may take"
    assert read().trouble == ""


def test_a_call_whose_process_is_gone_holds_nobody(file, read, deadline):
    file.tell("training", step=70)
    child = os.fork()
    if child == 0:
        try:
            deadline.set_in(-100)
            os._exit(0)
        finally:
            os._exit(255)  # no error makes the child go on with the tests
    assert os.waitpid(child, 0)[1] == 0
    assert read().trouble == ""
    deadline.set_in(-100)
    assert read().trouble != ""


def test_a_restart_begins_without_a_deadline(file, board, read, deadline):
    deadline.set_in(-100)
    board.note_start("starting", 2)
    file.tell("training", step=70)
    assert read().trouble == ""


def test_what_the_entrypoint_says_of_the_end_wins(file, board, read):
    file.tell("training", step=70)
    board.note("stopping", "the command has 8 s to end", within_seconds=8)
    assert (read().state, read().step) == ("stopping", 70)


def test_quick_steps_are_told_once_a_second(file, board, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    written = []
    for step in range(100):
        now += 0.05
        file.tell("training", step=step, at_once=False)
        written.append(told(board)["step"])
    assert len(set(written)) == 5


def test_a_state_lasts_from_its_first_word(file, board, monkeypatch):
    file.tell("training", step=1)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 60)
    file.tell("training", step=2)
    assert told(board)["since"] == pytest.approx(began, abs=5)


def test_nobody_looks_or_nothing_can_be_written(tmp_path):
    StatusFile(None).tell("training", step=1)
    StatusFile(tmp_path / "missing/status").tell("training", step=1)
    assert list(tmp_path.iterdir()) == []

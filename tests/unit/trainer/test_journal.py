"""events.jsonl: the events of a run, with those that the entrypoint has noted."""

import io
import json
import logging
from pathlib import Path

import pytest

from cluster_trainer.results.journal import FILE, Journal, read
from entrypoint.status.board import Board


def states(folder):
    return [(one.get("by"), one["state"]) for one in read(folder / FILE)]


def test_what_the_entrypoint_has_noted_is_taken_over_once(tmp_path):
    (tmp_path / "run").mkdir()
    board, journal = Board.put_up("worker-0", [tmp_path]), Journal(tmp_path / "run")
    events = Path(board.variables["EVENTS_FILE"])
    board.note("waiting", "for 1 of 2 workers")
    journal.take_over(events)
    journal.note("training", step=3)
    board.note_start("starting", 1)
    journal.take_over(events)
    journal.take_over(events)
    assert states(tmp_path / "run") == [
        ("entrypoint", "waiting"),
        (None, "training"),
        ("entrypoint", "starting"),
    ]
    assert read(tmp_path / "run" / FILE)[2]["restarts"] == 1


def test_without_an_entrypoint_there_is_nothing_to_take_over(tmp_path):
    Journal(tmp_path).take_over(None)
    Journal(tmp_path).take_over(tmp_path / "none")
    assert not (tmp_path / FILE).exists()


def test_why_the_network_is_the_limit_is_a_line_without_a_state(tmp_path):
    journal = Journal(tmp_path).of_fit("fit-1")
    journal.network("sums take 60% of the time")
    journal.network("")
    lines = read(tmp_path / FILE)
    assert [(one["network"], one["fit"]) for one in lines] == [
        ("sums take 60% of the time", "fit-1"),
        ("", "fit-1"),
    ]
    assert not [one for one in lines if "state" in one]


def test_an_epochs_seconds_are_a_line_without_a_state(tmp_path):
    Journal(tmp_path).epoch(2, 46, {"calls": 1.23456789})
    line = json.loads((tmp_path / FILE).read_text())
    assert {name: line[name] for name in ("epoch", "step", "seconds")} == {
        "epoch": 2,
        "step": 46,
        "seconds": {"calls": 1.2346},
    }


TIMES = ('"5"', "NaN", "1e300", "-1", "true", "null", f"1{0:0400}")
NO_EVENTS = ("", "{", "[]", "7", "[" * 100_000, '{"state": "done"}')
NO_EVENTS += tuple(f'{{"time": {time}}}' for time in TIMES)


@pytest.mark.parametrize("line", NO_EVENTS, ids=lambda line: line[:20])
def test_a_line_that_is_no_event_is_left_out(tmp_path, line):
    (tmp_path / FILE).write_text(f'{line}\n{{"time": 5, "state": "done"}}\n')
    assert states(tmp_path) == [(None, "done")]


def test_a_file_that_cannot_be_written_costs_one_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    journal = Journal(tmp_path / "none")
    journal.note("training")
    journal.note("done")
    assert caplog.text.count("training continues") == 1


def test_a_line_that_was_cut_off_does_not_swallow_the_next(tmp_path):
    journal = Journal(tmp_path)
    journal.note("training")
    with (tmp_path / FILE).open("a") as file:
        file.write('{"time": 1.0, "state": "sav')
    journal.note("saving")
    journal.note("done")
    assert [state for _, state in states(tmp_path)] == ["training", "saving", "done"]


def test_of_a_line_for_which_there_is_no_room_nothing_stays(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    journal.note("training")
    before = (tmp_path / FILE).read_bytes()
    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda *_, **__: Full(tmp_path / FILE))
        journal.note("saving")
    assert (tmp_path / FILE).read_bytes() == before


class Full(io.FileIO):
    """A file on a disk that takes ten bytes more."""

    def __init__(self, file):
        super().__init__(str(file), "a+")

    def write(self, content):
        return super().write(content[:10])

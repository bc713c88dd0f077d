"""The live line of `make up-local`: its text, and the terminals without it."""

import io
import json
import sys

import pytest

from local_cluster import messages
from local_cluster.run import live
from local_cluster.shared_folder import SharedFolder

TOLD = {
    "what": "training",
    "epoch": 2,
    "epochs": 30,
    "done": 5,
    "total": 10,
    "facts": ["0:17 left", "loss 0.2500"],
}


def told(**members):
    return json.dumps({**TOLD, **members}).encode()


def shown(content):
    return live.line(live.parsed(content))


def test_it_shows_the_place_with_a_bar_and_the_facts():
    assert shown(told()) == "epoch 2/30  ━━━━━───── 5/10  0:17 left  loss 0.2500"


def test_an_epoch_of_unknown_length_has_no_bar():
    assert shown(told(total=None)) == "epoch 2/30  5 steps  0:17 left  loss 0.2500"


def test_an_evaluation_is_called_so():
    assert shown(told(what="evaluating")) == "epoch 2/30  evaluating  0:17 left  loss 0.2500"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", told(done="x"), told(facts=3)])
def test_what_cannot_be_read_is_no_line(content):
    assert shown(content) == ""


def test_a_line_is_cut_to_the_terminal_and_holds_no_control_characters():
    assert live.cut("abcdef", 6) == "abcdef"
    assert live.cut("abcdefg", 6) == "abcde…"
    assert live.cut("a\x1b[31m\r", 80) == "a?[31m?"


@pytest.mark.parametrize(
    ("text", "width", "seen"),
    [
        ("損失 0.25", 9, "損失 0.25"),
        ("損失 0.25", 8, "損失 0.…"),
        ("損失損失", 4, "損…"),
        ("損失損失", 3, "損…"),
        ("損失損失", 2, "…"),
        ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("loss \U0001f600", 6, "loss …"),
        ("\u2764\ufe0fab", 3, "\u2764\ufe0f…"),  # wider on some terminals
    ],
)
def test_columns_are_counted_and_not_characters(text, width, seen):
    assert live.cut(text, width) == seen


@pytest.mark.parametrize(
    ("environ", "is_terminal", "draws"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
    ],
)
def test_only_a_terminal_that_may_be_drawn_on_has_it(monkeypatch, environ, is_terminal, draws):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert live.may_draw(environ) is draws


def test_lines_are_written_above_it(capsysbinary):
    messages.draw(sys.stdout, "live")
    messages.write(sys.stdout, b"a line\n")
    messages.draw(sys.stdout, "")
    erase = messages.ERASE
    assert capsysbinary.readouterr().out == erase + b"live" + erase + b"a line\nlive" + erase


def test_without_it_nothing_but_lines_is_written(capsysbinary):
    messages.write(sys.stdout, b"a line\n")
    assert capsysbinary.readouterr().out == b"a line\n"


def test_what_the_chief_told_before_it_did_something_else_is_not_shown(tmp_path):
    file = tmp_path / live.FILE
    file.write_bytes(told())
    missing = []
    line = live.Live(SharedFolder(tmp_path), lambda: missing)
    assert line._text().startswith("epoch 2/30")  # noqa: SLF001
    line.forget()
    assert line._text() == ""  # noqa: SLF001
    file.write_bytes(told(done=6))
    assert "6/10" in line._text()  # noqa: SLF001
    missing.append("worker-1")
    assert line._text() == "waiting for worker-1"  # noqa: SLF001


def test_a_worker_that_the_others_go_on_without_is_not_waited_for(tmp_path):
    file = tmp_path / live.FILE
    file.write_bytes(told(facts=["without worker-1"], missing=["worker-1"]))
    missing = ["worker-1"]
    line = live.Live(SharedFolder(tmp_path), lambda: missing)
    assert line._text() == "epoch 2/30  ━━━━━───── 5/10  without worker-1"  # noqa: SLF001
    missing.append("worker-2")
    assert line._text() == "waiting for worker-2"  # noqa: SLF001

"""The states that a machine reports for its worker, and the lines that are shown."""

import pytest

from local_cluster.run.lines import ScreenOptions
from machines.hosts_setting import Host
from machines.machine import Machine
from machines.own_container import OwnContainer
from machines.watching import worker_lines
from machines.watching.worker_lines import LineFollower
from machines.watching.worker_states import Seen, Status, parse

MACHINE = Machine(Host("ana@m1"), 0)


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("state - running 0", Seen(MACHINE, Status.RUNNING, 0, None)),
        ("state - exited 143", Seen(MACHINE, Status.ENDED, 143, None)),
        ("state 75 restarting 75", Seen(MACHINE, Status.COMING, 75, 75)),
        ("state 0 exited 0", Seen(MACHINE, Status.ENDED, 0, 0)),
        ("state - gone 0", Seen(MACHINE, Status.GONE, 0, None)),
        ("Welcome to m1", None),
        ("", None),
    ],
)
def test_a_state(line, seen):
    assert parse(line, MACHINE) == seen


def followed(capsysbinary, *connections):
    """Follow lines that are named by the tenths of their times; return those that are shown."""
    lines = LineFollower(OwnContainer(MACHINE, "c"), ScreenOptions(shows_all=True), None)
    for tenths in connections:
        lines.reconnected()
        for tenth in tenths:
            lines.take(f"2026-11-28T10:00:00.{tenth}Z {tenth}\n".encode(), is_error=False)
        lines.take(b"Connection to m1 closed by remote host.\n", is_error=True)
    return [line[-1:].decode() for line in capsysbinary.readouterr().out.splitlines()]


def test_lines_that_were_shown_before_the_connection_was_lost_are_not_shown_again(capsysbinary):
    assert followed(capsysbinary, "12", "123") == ["1", "2", "3"]


def test_a_clock_that_is_set_back_hides_no_line(capsysbinary):
    assert followed(capsysbinary, "8923", "34") == ["8", "9", "2", "3", "4"]


@pytest.mark.parametrize(
    ("connections", "shown"),
    [
        (("5", "534"), "534"),  # set back while the connection was lost
        (("5", "534", "5347"), "5347"),
        (("793", "7934"), "7934"),  # set back before: Docker begins with the first later line
        (("79", "24", "9"), "79"),  # another clock, without the line that was the last
    ],
)
def test_a_clock_that_is_set_back_is_no_matter_after_a_reconnection(
    capsysbinary, connections, shown
):
    assert "".join(followed(capsysbinary, *connections)) == shown


def test_lines_that_were_shown_long_ago_are_not_shown_again(capsysbinary, monkeypatch):
    monkeypatch.setattr(worker_lines, "MOST_KEPT", 2)
    assert followed(capsysbinary, "1234", "12345") == [*"12345"]

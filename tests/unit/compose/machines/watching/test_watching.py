"""The states that a machine reports for its worker, and the lines that are shown."""

import pytest

from local_cluster.run.lines import ScreenOptions
from machines.host import Host
from machines.machine import Machine
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


def test_a_line_that_was_shown_before_the_connection_was_lost_is_not_shown_again(capsysbinary):
    lines = LineFollower(MACHINE, "c", ScreenOptions(shows_all=True), None)
    for time in ("2026-11-28T10:00:00.1Z", "2026-11-28T10:00:00.2Z", "2026-11-28T10:00:00.1Z"):
        lines.take(f"{time} line {time[-2]}\n".encode(), is_error=False)
    lines.take(b"Connection to m1 closed by remote host.\n", is_error=True)
    assert capsysbinary.readouterr().out == b"worker-0 | line 1\nworker-0 | line 2\n"

"""`make up-local` in a terminal: a live line below the chief's lines shows the progress."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from harness.cluster import UP
from harness.waiting import wait_until

COLUMNS = 100
START_SECONDS = 90
END_SECONDS = 60
ERASE = "\r\x1b[K"
SETTINGS = {"WORKERS": "2", "TRAINER_EPOCHS": "5000", "TRAINER_STEPS_PER_EPOCH": "20"}


class Terminal:
    """A terminal, and a program that prints to it."""

    def __init__(self, command, environ):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        os.set_blocking(self._ours, False)
        streams = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
        self.process = subprocess.Popen(command, env=environ, start_new_session=True, **streams)
        os.close(theirs)
        self._bytes = b""

    @property
    def printed(self):
        try:
            while more := os.read(self._ours, 65536):
                self._bytes += more
        except OSError:  # no output yet, or the program has ended
            pass
        return self._bytes.decode(errors="replace")

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        # Keep reading: with a full terminal, the program could not write its last lines.
        has_ended = lambda: self.printed and self.process.poll() is not None  # noqa: E731
        wait_until(has_ended, END_SECONDS, "`up` ends", lambda: self.printed)
        return self.printed


@pytest.fixture
def terminal(workbench, tmp_path):
    for name in ("runs", "data", "workspace"):
        (tmp_path / name).mkdir()
    folders = {
        f"{name.upper()}_DIR": str(tmp_path / name) for name in ("runs", "data", "workspace")
    }
    own = {
        "COMPOSE_PROJECT_NAME": workbench.new_name("cluster"),
        "IMAGE": workbench.image,
        "TERM": "xterm",
    }
    environ = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    opened = Terminal(UP, {**environ, **folders, **own, **SETTINGS})
    yield opened
    opened.end()


def test_one_line_says_where_the_run_is(terminal, tmp_path):
    place = re.compile(r"epoch \d+/5000  [━─]{10} \d+/20  [\d:]+ left  loss \d\.\d+  accuracy ")
    has_line = lambda: place.search(terminal.printed)  # noqa: E731
    wait_until(has_line, START_SECONDS, "the live line is drawn", lambda: terminal.printed)
    printed = terminal.end()
    drawn = [line for line in re.split(r"\r\x1b\[K|\r\n", printed) if line.startswith("epoch ")]
    assert max(map(len, drawn)) < COLUMNS
    assert "| " in printed.rpartition(ERASE)[2]  # the line is erased at the end, and others follow
    assert not re.search(r"worker-1 \| [0-9:]{8} INFO .*accuracy", printed)
    for file in (tmp_path / "runs/latest/").glob("worker-*/*.log"):
        assert "\x1b" not in file.read_text(), file
    assert not (tmp_path / "runs/latest/worker-0/live.json").exists()

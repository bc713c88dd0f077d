"""The program that tests the connections on a machine."""

import subprocess
import sys

from machines.checks.connections import LISTEN_AND_DIAL


def start(program):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program, "0"], stdin=pipe, stdout=pipe)


def test_it_ends_with_its_standard_input():
    with start(LISTEN_AND_DIAL) as process:
        assert process.communicate(timeout=60)[0] == b"tried\n"
        assert process.returncode == 0


def test_it_ends_although_nobody_closes_its_standard_input():
    assert "Timer(120," in LISTEN_AND_DIAL
    with start(LISTEN_AND_DIAL.replace("Timer(120,", "Timer(0.5,")) as process:
        assert process.wait(60) == 1

"""The program that tests the connections on a machine."""

import subprocess
import sys

import pytest

from machines.checks.connections import LISTEN_AND_DIAL, _Try
from machines.hosts_setting import Host
from machines.machine import Machine


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


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("OSError: [Errno 98] Address already in use", "ana@m1: port 2222 was taken"),
        ("no space left", "ana@m1: the connections could not be tested: no space left"),
    ],
)
def test_a_program_that_failed_is_told(end, told):
    (sentence,) = _Try(Machine(Host("ana@m1"), 0), None).sentences([], end, {})
    assert sentence.startswith(told)

"""The output of nvidia-smi is parsed."""

import os
import signal
import subprocess

import pytest

from cluster_trainer.selftest import gpus
from cluster_trainer.selftest.gpus import Gpu, ask_nvidia_smi, count_files, parse_direct, parse_gpus

FOUR = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\t\x1b[0m
 GPU0\tX\tOK\tOK\tCNS
 GPU1\tOK\tX\tOK\tOK
 GPU2\tOK\tOK\tX\tOK
 GPU3\tCNS\tOK\tOK\tX

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""


def test_each_line_is_a_gpu():
    text = "NVIDIA H100 80GB HBM3, 570.86.15, 9.0, 81559, 4\nTesla T4, 525.60.13, 7.5, 15360, 0\n"
    assert parse_gpus(text) == [
        Gpu("NVIDIA H100 80GB HBM3", "570.86.15", "9.0", 81559, 4),
        Gpu("Tesla T4", "525.60.13", "7.5", 15360, 0),
    ]


def test_memory_that_is_not_told_is_unknown():
    (gpu,) = parse_gpus("NVIDIA GB10, 580.95.05, 12.1, [N/A], [N/A]\n")
    assert (gpu.total_mib, gpu.used_mib) == (None, None)


def test_a_name_may_have_a_comma():
    (gpu,) = parse_gpus("A, B, 570.86.15, 9.0, 81559, 4\n")
    assert (gpu.name, gpu.driver) == ("A, B", "570.86.15")


@pytest.mark.parametrize("text", ["", "No devices were found\n", "a, b, c\n"])
def test_other_lines_are_no_gpus(text):
    assert parse_gpus(text) == []


@pytest.mark.parametrize("text", [FOUR, FOUR.replace("\x1b[4m", "").replace("\x1b[0m", "")])
def test_each_pair_has_a_status(text):
    pairs = parse_direct(text)
    assert len(pairs) == 6
    assert {pair for pair, status in pairs.items() if status != "OK"} == {(0, 3)}
    assert pairs[0, 3] == "CNS"


@pytest.mark.parametrize("text", ["", "Invalid option\n", "\tGPU0\n GPU0\tX\n"])
def test_without_a_pair_there_is_no_status(text):
    assert parse_direct(text) == {}


def test_device_files_are_counted(tmp_path):
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert count_files(tmp_path) == 2


@pytest.mark.parametrize("script", [None, "exit 9"])
def test_a_program_that_is_missing_or_fails_says_nothing(tmp_path, script):
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho x\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    assert ask_nvidia_smi(["-L"], {"PATH": str(tmp_path)}) == ""


def test_does_not_wait_for_what_cannot_be_killed(tmp_path, monkeypatch):
    """A broken GPU may hold nvidia-smi in the kernel, where no signal ends it."""
    program, pid = tmp_path / "nvidia-smi", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec /bin/sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setattr(gpus, "SECONDS", 3.0)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)
    assert ask_nvidia_smi([], {"PATH": str(tmp_path)}) == ""
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it is still there

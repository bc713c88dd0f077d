"""GPUs are counted as the NVIDIA runtime lists them, without TensorFlow."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.checks import gpus
from entrypoint.checks.gpus import ask_nvidia_smi, check_gpus, count_gpus
from entrypoint.errors import ConfigurationError

TWO = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a1b)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2c3d)
"""
# As https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ shows it.
PARTITIONED = """\
GPU 0: A100-SXM4-40GB (UUID: GPU-e86cb44c)
  MIG 3g.20gb Device 0: (UUID: MIG-GPU-e86cb44c/1/0)
  MIG 3g.20gb Device 1: (UUID: MIG-GPU-e86cb44c/2/0)
  MIG 1g.5gb Device 2: (UUID: MIG-GPU-e86cb44c/9/0)
"""


@pytest.mark.parametrize(("text", "count"), [("", 0), (TWO, 2), (PARTITIONED, 3)])
def test_counts_gpus_or_their_instances(nvidia_smi: Callable, text: str, count: int) -> None:
    assert count_gpus(nvidia_smi(text)) == count


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        ("0,1", 2),
        ("1", 1),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("GPU-0a1b, GPU-2c3d", 2),
        ("0,1,2", 2),
    ],
)
def test_counts_what_cuda_may_see(nvidia_smi: Callable, visible: str, count: int) -> None:
    assert count_gpus(nvidia_smi(TWO) | {"CUDA_VISIBLE_DEVICES": visible}) == count


def test_counts_nothing_where_there_is_no_driver(tmp_path: Path) -> None:
    assert count_gpus({"PATH": str(tmp_path)}) == 0


def test_does_not_wait_for_what_cannot_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken GPU may hold nvidia-smi in the kernel, where no signal ends it."""
    program, pid = tmp_path / "nvidia-smi", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec /bin/sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setattr(gpus, "SECONDS", 3.0)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)
    assert ask_nvidia_smi([], {"PATH": str(tmp_path)}) is None
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it is still there


@pytest.mark.parametrize(("expected", "text"), [(None, ""), (0, ""), (2, TWO)])
def test_accepts_the_right_number(nvidia_smi: Callable, expected: int | None, text: str) -> None:
    check_gpus(expected, nvidia_smi(text))


@pytest.mark.parametrize(
    ("expected", "text", "says"),
    [
        (1, "", "No GPU can be seen in this container. Is --gpus all missing"),
        (1, TWO, "2 GPUs can be seen in this container."),
        (0, TWO, "2 GPUs can be seen in this container."),
    ],
)
def test_refuses_another_number(nvidia_smi: Callable, expected: int, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_gpus(expected, nvidia_smi(text))
    assert f'GPUS_PER_WORKER: received "{expected}"' in str(caught.value)
    assert says in str(caught.value)


def test_in_a_pod_a_missing_gpu_is_asked_for_in_the_pods_own_words(
    nvidia_smi: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "is_in_pod", lambda: True)
    with pytest.raises(ConfigurationError, match=r"nvidia.com/gpu missing in resources.limits\?"):
        check_gpus(1, nvidia_smi(""))

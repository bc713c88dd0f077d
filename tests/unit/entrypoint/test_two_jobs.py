"""Two jobs of Slurm on the same nodes, with the same port."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.ports import free_ports

TASKS = {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "127.0.0.1",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_STEP_ID": "0",
    "RENDEZVOUS_TIMEOUT": "3",
    "MAX_RESTARTS": "0",
}


@pytest.mark.parametrize(("jobs", "code"), [(("7", "8"), 75), (("7", "7"), 0)])
def test_a_command_meets_only_workers_of_its_own_job(
    entrypoint: tuple[str, ...], tmp_path: Path, jobs: tuple[str, str], code: int
) -> None:
    given = {**TASKS, "TMPDIR": str(tmp_path), "WORKER_PORT": str(free_ports(1)[0])}
    processes = [
        subprocess.Popen(
            [*entrypoint, "/bin/true"],
            env={**given, "SLURM_PROCID": str(rank), "SLURM_JOB_ID": job},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, job in enumerate(jobs)
    ]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [code] * 2, said
    for rank, text in enumerate(said if code else ()):
        other, own = jobs[1 - rank], jobs[rank]
        assert f"another program, Slurm job {other}.0; this is Slurm job {own}.0" in text

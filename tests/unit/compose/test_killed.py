"""`make up-local` after a worker's container was killed. Docker is a script here."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import wait_until

PROGRAM = Path(__file__).parents[3] / "compose/cluster.py"
# The script takes its behaviour from files beside it: `events`, `answer` (to `start`), and
# `variables` (of the containers).
DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
event() { echo "$1 worker-$2 $3 $4 id-$2 1795351041850215000"; }
wait_for() { while [ ! -e "$1" ]; do sleep 0.05; done; }
case "$1 $3" in
    "events "*) . ./events;;
    "start "*) echo "$2" >> asked; . ./answer;;
    "inspect "*Env*) cat variables;;
    "inspect "*OOM*) echo false;;
esac
"""
BOTH_START = "event start 0 - -; event start 1 - -\n"
KILLED = "event kill 1 - 9; event die 1 137 -\n"
BOTH_END = "event die 0 0 -; event die 1 0 -\n"
FOR_EVER = "wait_for over\n"


@pytest.fixture
def up(tmp_path):
    """Start `cluster.py up` with a script of events, and return the process."""
    processes = []

    def begin(events, answer="", variables="PATH=/bin\n"):
        files = {"events": events, "answer": answer, "variables": variables, "docker": DOCKER}
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        (tmp_path / "docker").chmod(0o755)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RUNS_DIR": str(tmp_path / "runs")}
        processes.append(
            subprocess.Popen(
                [sys.executable, PROGRAM, "up"],
                env={**os.environ, **path, "WORKERS": "2"},
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return processes[0]

    yield begin
    (tmp_path / "over").touch()
    for process in processes:
        process.kill()
        process.communicate()


def ended(process):
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def test_its_container_is_started_again_and_all_go_on(up, tmp_path):
    events = BOTH_START + KILLED + "wait_for asked; event start 1 - -\n" + BOTH_END + FOR_EVER
    code, said = ended(up(events))
    assert (code, (tmp_path / "asked").read_text()) == (0, "id-1\n")
    assert "worker-1 was killed: starting its container again, 1 of 3." in said
    assert "worker-1 is started again" in said


def test_not_where_its_start_would_remove_the_checkpoints(up, tmp_path):
    """An overlay may have set the variable, so the container is asked for it."""
    variables = "PATH=/bin\nTRAINER_RESUME=never\nTRAINER_EPOCHS=3\n"
    code, said = ended(up(BOTH_START + KILLED + FOR_EVER, variables=variables))
    assert "worker-1 ended first, with exit code 137 (killed); stopping the others." in said
    assert (code, (tmp_path / "asked").exists()) == (137, False)


def test_not_where_another_worker_is_done(up, tmp_path):
    code, _ = ended(up(BOTH_START + "event die 0 0 -\n" + KILLED + FOR_EVER))
    assert (code, (tmp_path / "asked").exists()) == (137, False)


def test_one_that_cannot_be_started_again_ends_the_run(up):
    answer = "echo 'no space left' >&2; exit 1"
    code, said = ended(up(BOTH_START + KILLED + FOR_EVER, answer))
    assert "worker-1 could not be started again: no space left" in said
    assert "worker-1 ended first, with exit code 137 (killed); stopping the others." in said
    assert code == 137


def test_a_stop_does_not_wait_for_the_engine_to_start_it(up, tmp_path):
    """Send SIGTERM, because a shell's background processes ignore SIGINT."""
    process = up(BOTH_START + KILLED + FOR_EVER, answer="wait_for over")
    wait_until((tmp_path / "asked").exists, 60, "the engine is asked to start it", lambda: "")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 143

"""The table of a cluster's workers. The docker command is a script here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from local_cluster.commands.status import NO_USAGE, row, table

PROGRAM = Path(__file__).parents[3] / "compose/cluster.py"
AT = {
    "worker": "worker-0",
    "state": "waiting",
    "detail": "waiting for 1 of 4 workers for 7 s: worker-1 at worker-1:2222: refused",
    "step": 120,
    "epoch": 3,
    "epochs": 50,
    "restarts": 1,
    "slow_reason": "holds the others up",
    "network_reason": "the network is the limit",
    "sync_every": 16,
    "network_links": [],
    "seconds": 7.5,
    "last_line": "10:00:00 INFO worker-0 waiting for 1 of 4 workers",
    "healthy": False,
    "trouble": "waiting for 60 s longer than it may take",
}
# worker-0 answers, worker-1 was stopped, worker-2 has an older image, worker-3 ended with 75.
DOCKER = """#!/bin/sh
case "$1 $2" in
    "ps --all") printf '%s\\n' d0 c0 a0 b0;;
    "inspect --format") printf '%s\\n' 'worker-3 exited 75 d0 2026-01-01T09:59:00.1Z -' \
        'worker-2 running 0 c0 2026-01-01T09:30:00.123456789Z -' \
        'run-folder exited 0 e0 2026-01-01T09:59:00Z -' \
        'worker-0 running 0 a0 2026-01-01T09:59:48.9Z -' \
        'worker-1 exited 143 b0 2026-01-01T09:59:00Z -';;
    "info --format") echo '2026-01-01T12:00:00.5+02:00';;
    "exec a0") test "$3 $4" = "status --json" && cat answer;;
    "exec c0") echo 'status: executable file not found' >&2; exit 127;;
    "stats --no-stream") printf 'a0\\t512.5MiB / 23GiB\\t101.26%%\\nc0\\t-- / --\\t--\\n';;
    "logs --tail") echo "the last of $4";;
    *) echo "unexpected: $*" >&2; exit 1;;
esac
"""


@pytest.fixture
def status(tmp_path):
    """Run `cluster.py status` with this docker command."""

    def run(*arguments, docker=DOCKER):
        (tmp_path / "answer").write_text(json.dumps(AT))
        (tmp_path / "docker").write_text(docker)
        (tmp_path / "docker").chmod(0o755)
        return subprocess.run(
            [sys.executable, PROGRAM, "status", *arguments],
            env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_each_worker_is_a_line_in_the_order_of_their_numbers(status):
    done = status()
    assert done.returncode == 0, done.stderr
    head, *lines, trouble, slow, network = done.stdout.splitlines()
    heads = ["worker", "state", "step", "up", "restarts", "memory", "CPU", "last", "line"]
    assert head.split() == heads
    assert [line.split() for line in lines] == [
        [
            *["worker-0", "waiting", "120,", "epoch", "3/50", "12", "s", "1"],
            *["512.5MiB", "101", "%"],
            *["10:00:00", "INFO", "waiting", "for", "1", "of", "4", "workers"],
        ],
        ["worker-1", "stopped", "(143)", *"-----", "the", "last", "of", "b0"],
        ["worker-2", "running", "-", "30", "min", *"---"],
        ["worker-3", "failed", "(75)", *"-----", "the", "last", "of", "d0"],
    ]
    assert trouble == "worker-0: waiting for 60 s longer than it may take"
    assert slow == "worker-0: holds the others up"
    assert network == "worker-0: the network is the limit"


def test_as_json_there_is_all_that_is_known(status):
    first, second, third, fourth = json.loads(status("--json").stdout)
    assert first == AT | {
        "container": "a0",
        "exit_code": None,
        "up_seconds": 12.0,
        "memory": "512.5MiB",
        "cpu_percent": 101.26,
    }
    assert (second["state"], second["exit_code"], second["healthy"]) == ("stopped", 143, False)
    assert (third["state"], third["healthy"], third["memory"]) == ("running", None, None)
    assert (fourth["state"], fourth["detail"]) == ("failed", "exit code 75")


def test_an_engine_that_does_not_tell_the_time_tells_all_else(status):
    without = DOCKER.replace('"info --format")', '"info")')
    done = status("--json", docker=without)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)[0]
    assert (first["up_seconds"], first["step"], first["memory"]) == (None, 120, "512.5MiB")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "-"),
        (0.4, "0 s"),
        (59.7, "59 s"),
        (60.0, "1 min"),
        (3590.0, "59 min"),
        (5400, "1.5 h"),
    ],
)
def test_a_container_is_up_for_whole_seconds_and_minutes(seconds, expected):
    assert row({**AT, "exit_code": None, **NO_USAGE, "up_seconds": seconds})[3] == expected


def test_no_cluster_is_said_in_words(status):
    done = status(docker="#!/bin/sh\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cluster-trainer has no workers here. `make up-local`" in done.stderr


def test_an_engine_that_does_not_answer_is_told_in_its_own_words(status):
    done = status(docker="#!/bin/sh\necho 'Cannot connect' >&2; exit 1\n")
    assert (done.returncode, "Cannot connect" in done.stderr) == (1, True)


def test_a_terminal_shows_two_lines_of_a_worker():
    unknown = dict.fromkeys(("exit_code", "up_seconds", "memory", "cpu_percent"))
    found = [AT | unknown | {"last_line": "x" * 500}]
    assert [len(line) for line in table(found, 200).splitlines()][1] == 200
    assert len(table(found, 0).splitlines()[1]) > 500

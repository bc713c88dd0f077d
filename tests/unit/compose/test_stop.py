"""`stop` waits for the process that runs a cluster. The docker command is a script here."""

import subprocess

import pytest

from local_cluster.commands import stop as stop_module
from local_cluster.commands.stop import stop
from local_cluster.messages import EndError
from local_cluster.process_identity import identity_of

# worker-0 runs. Once it is stopped, worker-1 runs, because `up` has started it meanwhile. Stopping
# worker-1 takes longer than END_SECONDS.
DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
worker=0
[ ! -e stopped-c0 ] || worker=1
case "$1 $*" in
    inspect*) echo "worker-$worker running 0 c$worker then $(cat up)";;
    ps*) [ -e stopped-c1 ] || echo "c$worker worker-$worker";;
    stop*c1) sleep 1.5; touch stopped-c1;;
    stop*c0) touch stopped-c0;;
esac
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Return a function that runs a cluster. Once all are stopped, its `up` runs a command."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(stop_module, "END_SECONDS", 1.0)
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    processes = []

    def let(then):
        script = f"while [ ! -e stopped-c1 ]; do sleep 0.05; done; {then}"
        processes.append(subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path))
        (tmp_path / "up").write_text(identity_of(processes[0].pid))

    yield let
    for process in processes:
        process.kill()
        process.wait()


def test_a_worker_that_was_being_started_is_stopped_too_however_long_that_takes(
    cluster, tmp_path, capsys
):
    cluster("sleep 0.1")
    assert stop({}) == 0
    assert (tmp_path / "stopped-c1").exists()
    assert "all have ended" in capsys.readouterr().out


def test_one_that_does_not_end_is_told_of(cluster):
    cluster("exec sleep 60")
    with pytest.raises(EndError) as caught:
        stop({})
    assert "process" in caught.value.sentences[0]


def test_another_process_with_its_number_is_not_waited_for(cluster, tmp_path, capsys):
    """`up` was killed, and its number was given to another program."""
    cluster("exec sleep 60")
    number, _, _ = (tmp_path / "up").read_text().partition("@")
    (tmp_path / "up").write_text(f"{number}@1")
    assert stop({}) == 0
    assert "all have ended" in capsys.readouterr().out


# No container is left after the first `inspect`.
ENDING = """#!/bin/sh
cd "$(dirname "$0")"
case "$1" in
    ps) [ -e looked ] || printf "c0 worker-0\\nc1 worker-1\\n";;
    inspect) [ ! -e looked ] || { echo "Error: No such object: $2" >&2; exit 1; }
        printf "worker-0 running 0 c0 then -\\nworker-1 running 0 c1 then -\\n"; touch looked;;
    stop) echo "Error response from daemon: No such container: $2" >&2; exit 1;;
esac
"""


@pytest.mark.parametrize("worker", ["", "1"])
def test_workers_that_end_meanwhile_have_ended(cluster, tmp_path, worker):
    cluster("true")
    (tmp_path / "docker").write_text(ENDING)
    assert stop({}, worker) == 0


def test_another_number_is_refused_with_those_that_run(cluster):
    cluster("true")
    with pytest.raises(EndError, match=r'WORKER: received "3".*: 0\.'):
        stop({}, "3")

"""Containers beside a cluster mount folders of this machine. Here, docker is a script."""

import pytest

from local_cluster.commands import data, report, tensorboard
from local_cluster.messages import EXIT_CONFIGURATION, EndError


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Put a docker into PATH whose engine is on another machine; return the environment."""
    (tmp_path / "docker").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n'
        'case "$1" in context) echo default ssh://ana@m1;; '
        'create) echo "no such path" >&2; exit 1;; run) echo ran;; esac\n'
    )
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "runs/first/worker-0").mkdir(parents=True)
    (tmp_path / "sets").mkdir()
    (tmp_path / "report").mkdir()
    monkeypatch.setattr(report, "PACKAGES", tmp_path / "report")
    monkeypatch.setattr("os.execvp", lambda *_: pytest.fail("a container was started"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return {"RUNS_DIR": str(tmp_path / "runs"), "RUN_NAME": "first", "TENSORBOARD_PORT": "16006"}


@pytest.mark.parametrize("command", ["tensorboard", "report", "data"])
def test_an_engine_elsewhere_is_refused(elsewhere, tmp_path, command):
    """Otherwise its engine would make empty folders there, of root."""
    commands = {
        "tensorboard": lambda: tensorboard.tensorboard(elsewhere),
        "report": lambda: report.report(elsewhere),
        "data": lambda: data.prepare({**elsewhere, "DATA_DIR": str(tmp_path / "sets")}, "mnist"),
    }
    with pytest.raises(EndError) as caught:
        commands[command]()
    assert caught.value.code == EXIT_CONFIGURATION
    assert caught.value.sentences[0].startswith('DOCKER_HOST: received "ssh://ana@m1"')


def test_a_volume_may_be_elsewhere(elsewhere, monkeypatch):
    started = []
    monkeypatch.setattr("os.execvp", lambda _, command: started.append(command))
    data.prepare(elsewhere, "mnist")
    assert "cluster-trainer_data:/data" in started[0]

"""Keras with our patches alone, without the engine, passes the tests that go with the patches."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "test_several_steps_per_execution",
        pytest.param("test_two_workers_train_as_one", marks=pytest.mark.long),
    ],
)
def test_two_workers_train_as_one_does(pytestconfig, name):
    tests = pytestconfig.rootpath / "patches/trainer_multi_worker_test.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tests), "-k", name]
    environ = os.environ | {"CLUSTER_TRAINER_ENGINE": "off"}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout

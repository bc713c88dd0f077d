"""Each part is a process with a time limit, which the entrypoint starts with its own settings."""

import os
import sys
import time

import pytest

from cluster_trainer.selftest import running
from cluster_trainer.selftest.running import RESULT, Bench, run_within
from entrypoint.proc import living_processes
from harness.waiting import wait_until

DEAF = "trap '' TERM; echo $$; sleep 60 & wait; wait"
STAND_IN = """
import json, os, sys
print("the last line")
names = ("WORKER_HOSTS", "MAX_RESTARTS", "TRAINER_WIRE", "TRAINER_RUN_DIR", "VERBOSE_FILE", "OWN")
with open(sys.argv[-1], "w") as file:
    json.dump({"arguments": sys.argv[1:-1], **{name: os.environ.get(name) for name in names}}, file)
if os.environ["OWN"] == "fails":
    with open(os.environ["FAILURE_FILE"], "w") as file:
        file.write("worker-0: it crashed\\nmore\\n")
    sys.exit(3)
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A bench whose entrypoint only records its arguments and variables."""
    monkeypatch.setattr(running, "ENTRYPOINT", (sys.executable, "-c", STAND_IN))
    given = {"WORKER_HOSTS": "a,b", "TRAINER_WIRE": "bfloat16", "VERBOSE_FILE": "/x"}
    return Bench(tmp_path, {**os.environ, **given}, 30.0)


def test_a_part_has_the_users_cluster_and_settings_of_its_own(bench, tmp_path):
    outcome = bench.run("a part", ["python", "x.py", RESULT], {"OWN": "runs"}, 30.0)
    assert (outcome.code, outcome.reason, outcome.log) == (0, "", "the last line")
    assert outcome.facts == {
        "arguments": ["python", "x.py"],
        "WORKER_HOSTS": "a,b",
        "MAX_RESTARTS": "0",
        "TRAINER_WIRE": "",
        "TRAINER_RUN_DIR": str(tmp_path / "a-part/runs"),
        "VERBOSE_FILE": None,
        "OWN": "runs",
    }


def test_a_failure_has_the_entrypoints_reason(bench):
    outcome = bench.run("a part", [RESULT], {"OWN": "fails"}, 30.0)
    assert (outcome.code, outcome.reason) == (3, "worker-0: it crashed")


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_result_that_cannot_be_read_has_no_facts(bench, monkeypatch, text):
    program = f"import sys; open(sys.argv[1], 'w').write({text!r})"
    monkeypatch.setattr(running, "ENTRYPOINT", (sys.executable, "-c", program))
    assert bench.run("a part", [RESULT], {}, 30.0).facts == {}


def test_a_command_that_hangs_is_killed_with_all_that_it_has_started(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "KILL_SECONDS", 0.2)
    output = tmp_path / "output"
    begin = time.monotonic()
    with output.open("wb") as file:
        assert run_within(["sh", "-c", DEAF], dict(os.environ), 0.5, file) is None
    assert time.monotonic() - begin < 10
    session = int(output.read_text())
    is_gone = lambda: session not in [one.session for one in living_processes()]  # noqa: E731
    wait_until(is_gone, 10, "its processes are gone", output.read_text)

"""Running out of memory in a real container is reported as such, and no other kill is."""

import json

import pytest

LIMIT = {"mem_limit": "100m", "memswap_limit": "100m"}
EATS = "python -c \"b'x' * 10**9\""
RAN_OUT = "out of memory, this container's limit is {} MiB (docker run --memory)"
ONCE = {"MAX_RESTARTS": "0"}

# Uses up all memory at the first start. `oom_score_adj` selects the process that the kernel kills.
# The pieces are small, because the kernel may kill all processes if another one continues to
# allocate.
HUNGRY = """
import os
from pathlib import Path

import numpy as np

BITE = 2**18


def load():
    first = Path("/runs/first")
    if not first.exists():
        first.touch()
        watcher = os.getppid()
        victim = {"child": os.getpid(), "watcher": watcher}[os.environ["VICTIM"]]
        Path(f"/proc/{victim}/oom_score_adj").write_text("1000")
        eaten = []
        while os.getppid() == watcher:
            eaten.append(b"x" * BITE)
    examples = np.eye(4, dtype=np.float32), np.arange(4)
    return examples, examples


def build(input_shape, num_classes):
    import keras

    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(num_classes)])
"""


@pytest.mark.parametrize(
    ("command", "code", "ended"),
    [
        (f"exec {EATS}", 137, "was killed by SIGKILL:"),
        (f"{EATS}; exit $?", 137, "ended with exit code 137:"),
        (f"{EATS} || exit 3", 3, "ended with exit code 3, after a process here was killed:"),
    ],
    ids=["the-command", "its-last-child", "a-child"],
)
def test_the_limit_that_was_hit_is_named(run_to_end, tmp_path, command, code, ended):
    environment = ONCE | {"FAILURE_FILE": "/failures/reason"}
    volumes = [f"{tmp_path}:/failures"]
    container = run_to_end(
        *("bash", "-c", command), environment=environment, volumes=volumes, **LIMIT
    )
    assert container.code == code, container
    reason = f"the command {ended} {RAN_OUT.format(100)}"
    assert f" ERROR worker-0 {reason}" in container.err
    assert container.err.count(f"exit code {code}") == 1
    assert (tmp_path / "reason").read_text().splitlines()[0] == f"worker-0: {reason}"


@pytest.mark.parametrize("limit", [LIMIT, {}], ids=["with-a-limit", "without"])
def test_a_kill_by_somebody_is_not_called_so(run_to_end, limit):
    ended = run_to_end("bash", "-c", "kill -KILL $$", environment=ONCE, **limit)
    assert ended.code == 137
    assert "the command was killed by SIGKILL (exit code 137)" in ended.err
    assert "memory" not in ended.err


def test_memory_that_ran_out_for_an_earlier_run_explains_no_later_one(run_to_end):
    crashes = f"[ -e /tmp/second ] && kill -KILL $$; touch /tmp/second; exec {EATS}"
    environment = {"MAX_RESTARTS": "1"}
    ended = run_to_end("bash", "-c", crashes, environment=environment, **LIMIT)
    assert "out of memory, this container's limit is 100 MiB" in ended.err
    gave_up = "gave up after 1 restart without progress: the command was killed by SIGKILL (exit"
    assert gave_up in ended.err.splitlines()[-1]


@pytest.fixture
def train(run_to_end, tmp_path):
    """Train on a data set that uses up memory once; return the end, and the worker's folder."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/hungry.py").write_text(HUNGRY)
    (tmp_path / "runs").mkdir()

    def run(**environment):
        settings = {"TRAINER_DATASET": "hungry:load", "TRAINER_MODEL": "hungry:build"}
        ended = run_to_end(
            environment=settings | {"TRAINER_EPOCHS": "1", "TRAINER_THREADS": "1"} | environment,
            volumes=[f"{tmp_path}/workspace:/workspace:ro", f"{tmp_path}/runs:/runs"],
            mem_limit="2000m",
            memswap_limit="2000m",
        )
        return ended, tmp_path / "runs/worker-0"

    return run


def test_training_that_ran_out_of_memory_says_so_and_is_started_again(train):
    ended, folder = train(VICTIM="child")
    assert ended.code == 0, ended
    reason = f"the training process was killed by SIGKILL: {RAN_OUT.format(2000)}"
    assert f" ERROR worker-0 failed: {reason}; a smaller batch or a larger limit" in ended.out
    assert f"the command ended with exit code 137: {RAN_OUT.format(2000)}; restart 1" in ended.err
    assert json.loads((folder / "result.json").read_text())["status"] == "done"


@pytest.mark.long  # the tests above and below cover the reason and the file
def test_training_that_is_given_up_for_want_of_memory_leaves_the_reason_behind(train):
    ended, folder = train(VICTIM="child", MAX_RESTARTS="0", FAILURE_FILE="/runs/failure")
    assert ended.code == 137, ended
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], RAN_OUT.format(2000) in result["reason"]) == ("failed", True)
    assert RAN_OUT.format(2000) in (folder.parent / "failure").read_text().splitlines()[0]


def test_a_watcher_that_the_kernel_kills_first_is_named_and_started_again(train):
    ended, folder = train(VICTIM="watcher")
    assert ended.code == 0, ended
    assert f"the command was killed by SIGKILL: {RAN_OUT.format(2000)}; restart 1 of 3" in ended.err
    assert json.loads((folder / "result.json").read_text())["status"] == "done"

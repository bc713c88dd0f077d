"""Runs tests/inside in a container: the tests of the trainer that need TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.ended import run_and_remove

ROOT = Path(__file__).parents[2]
TOOLS = "/opt/inside-tools"
TESTS = "/inside"
MAX_SECONDS = 560
# The mounted folder holds pytest alone; the trainer, TensorFlow and all else are the image's.
# One process keeps one processor busy; nothing in there depends on time.
PROCESSES = "--numprocesses auto --maxprocesses 4 --dist worksteal"
OPTIONS = f"-q -rfE --durations=10 --color=no -p no:cacheprovider {PROCESSES}"
PYTEST = f"PYTHONPATH={TOOLS} exec python -m pytest {OPTIONS} {TESTS}"


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """A folder with pytest for the image's Python, installed unless INSIDE_TOOLS names one."""
    given = os.environ.get("INSIDE_TOOLS")
    if given:
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("inside-tools")
    locked = ROOT / "requirements/inside.txt"
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*line, "--target", str(folder), "--requirement", str(locked)], check=True)
    return folder


def test_what_needs_tensorflow_holds_inside_the_image(workbench, tools):
    ended = run_and_remove(
        workbench,
        "bash",
        "-c",
        PYTEST,
        timeout_seconds=MAX_SECONDS,
        volumes=[f"{tools}:{TOOLS}:ro", f"{ROOT}/tests/inside:{TESTS}:ro"],
        tmpfs={"/tmp": "mode=1777,exec"},
        network_mode="none",
        environment={"MAX_RESTARTS": "0"},  # failed once is failed
    )
    print(ended.out)
    failed = [line for line in ended.out.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert not failed
    assert ended.code == 0, ended.err

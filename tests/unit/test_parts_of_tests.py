"""The parts of `make test` and `make chaos`. Each part is a script that ends as a test says."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.waiting import wait_until

SCRIPTS = Path(__file__).parents[2] / "scripts"
NONE_SELECTED, INTERRUPTED, INTERRUPTED_INSIDE = 5, 2, 130
STAND_IN = """#!/bin/bash
echo "${0##*/} $*" >> calls
for end in ends/*; do
    [ -e "$end" ] || continue
    case "${0##*/} $*" in *"${end##*/}"*) exit "$(cat "$end")" ;; esac
done
"""

PYTHON = ".venv/bin/python"
ENDLESS = """#!/bin/bash
trap 'kill $!; touch ended' TERM
sleep 60 &
touch runs
wait
"""
UNTIL_IT_RUNS = "until [ -e runs ]; do sleep 0.01; done"


@dataclass(frozen=True)
class Clone:
    """A clone of the repository in which every part only records its call."""

    root: Path

    def ends(self, text: str, code: int) -> None:
        """Let parts with a text in their command end with a code. All others end with 0."""
        (self.root / "ends" / text).write_text(str(code))

    def run(self, script: str, *arguments: str, **environ: str) -> int:
        kept = {name: text for name, text in os.environ.items() if name != "TESTS"}
        command = [self.root / "scripts" / script, *arguments]
        return subprocess.run(command, env=kept | environ, check=False, timeout=60).returncode

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def clone(tmp_path):
    for folder in ("scripts", "ends", ".venv/bin", "tests/cluster", "tests/image"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("test.sh", "chaos.sh", "parts.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for name in ("scripts/inside.sh", "scripts/unit.sh", PYTHON):
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    return Clone(tmp_path)


@pytest.fixture(params=["test.sh", "chaos.sh"])
def script(request):
    return request.param


def test_all_parts_are_run_with_the_arguments(clone, script):
    assert clone.run(script, "-k", "two words") == 0
    assert all(call.endswith("-k two words") for call in clone.calls)
    assert len(clone.calls) == {"test.sh": 4, "chaos.sh": 4}[script]


def test_a_part_that_fails_does_not_keep_the_others_from_running(clone, script):
    clone.ends("inside.sh tests", 1)
    assert clone.run(script) == 1
    assert clone.calls[-1].startswith("python -m pytest")


def test_a_part_without_a_selected_test_has_not_failed(clone, script):
    clone.ends("pytest", NONE_SELECTED)
    assert clone.run(script) == 0


def test_nothing_selected_in_any_part_is_a_failure(clone, script):
    clone.ends(" ", NONE_SELECTED)
    assert clone.run(script) == NONE_SELECTED


@pytest.mark.parametrize("code", [INTERRUPTED, INTERRUPTED_INSIDE])
def test_after_ctrl_c_no_further_part_is_run(clone, script, code):
    clone.ends("inside.sh tests", code)
    assert clone.run(script) == code
    later = {"test.sh": "test_stopping.py", "chaos.sh": "hypothesis"}[script]
    assert not any(later in call for call in clone.calls)


def test_ctrl_c_ends_what_runs_in_the_background(clone):
    inside, container_tests = (clone.root / name for name in ("scripts/inside.sh", PYTHON))
    inside.write_text(ENDLESS)
    container_tests.write_text(STAND_IN.replace("\n", f"\n{UNTIL_IT_RUNS}\n", 1))
    clone.ends("--numprocesses", INTERRUPTED)
    assert clone.run("test.sh") == INTERRUPTED
    wait_until((clone.root / "ended").exists, 10, "it has ended", lambda: str(clone.calls))


def test_tests_that_are_named_are_run_where_they_belong(clone):
    paths = "tests/unit/test_oom.py tests/inside/test_run.py"
    assert clone.run("test.sh", TESTS=paths) == 0
    inside, outside = clone.calls
    assert inside == "inside.sh tests/inside/test_run.py"
    assert outside == "python -m pytest tests/unit/test_oom.py"

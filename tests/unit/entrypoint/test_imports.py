"""A start imports neither the trainer nor tensorflow, and nothing slow without need."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).resolve().parents[3] / "entrypoint"
ALLOWED = {*sys.stdlib_module_names, "entrypoint", "dotenv"}

# A good start up to the command. It prints the modules that were imported.
PROGRAM = """
import json, pathlib, sys
sys.path.insert(0, {root!r})
before = set(sys.modules)
import entrypoint.__main__ as program
{stub}
code = program.main(["true"], {environ!r}, pathlib.Path({directory!r}))
print(json.dumps([code, sorted(set(sys.modules) - before)]))
"""


UP_TO_THE_START = "program.start = lambda start, log: 0"
TWO = {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "0"}
# Processes that are forked off later have these modules, too.
UP_TO_THE_COMMAND = """
import entrypoint.start
entrypoint.start.run = lambda *_, **__: 0
"""


def imported(directory: Path, stub: str = UP_TO_THE_START, **environ: str) -> set[str]:
    """Return the modules that a good start with this environment imports."""
    program = PROGRAM.format(
        root=str(PACKAGE.parent),
        environ=environ,
        directory=str(directory),
        stub=stub,
    )
    child = subprocess.run(
        [sys.executable, "-I", "-c", program],
        capture_output=True,
        check=True,
    )
    code, modules = json.loads(child.stdout)
    assert code == 0
    return set(modules)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WORKER_HOSTS": "127.0.0.1"},
        {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "0"},
        {"TF_CONFIG": '{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}}'},
    ],
)
def test_never_imports_the_trainer_or_tensorflow(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / ".env").write_text("A=1")
    roots = {name.partition(".")[0] for name in imported(tmp_path, **environ)}
    assert not roots & {"trainer", "tensorflow", "keras", "numpy", "pydantic"}


def test_every_import_is_of_the_standard_library_or_dotenv() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= ALLOWED, path


SLURM = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}


@pytest.mark.parametrize(
    "environ",
    [
        {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "0"},
        {"SM_HOSTS": '["a","b"]', "SM_CURRENT_HOST": "a", "SM_HPS": '{"epochs":"1"}'},
        {"SKYPILOT_NODE_IPS": "10.0.0.1", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_TASK_ID": "a"},
        SLURM,
    ],
)
def test_a_good_start_imports_nothing_slow(tmp_path: Path, environ: dict[str, str]) -> None:
    modules = imported(tmp_path, **environ)
    slow = {"dotenv", "socket", "threading", "subprocess", "asyncio"}
    assert not modules & slow


def test_what_deals_with_peers_is_imported_once_before_it_is_forked_off(tmp_path: Path) -> None:
    modules = imported(tmp_path, UP_TO_THE_COMMAND, **TWO)
    rooms = ("gate", "watch.peer_watch", "command_rings.serve")
    assert modules >= {"asyncio", *(f"entrypoint.rendezvous.{room}" for room in rooms)}


def test_a_worker_that_is_alone_does_not_wait_for_that(tmp_path: Path) -> None:
    assert "asyncio" not in imported(tmp_path, UP_TO_THE_COMMAND)


def test_only_main_reads_the_process_environment() -> None:
    readers = {
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "argv", "getcwd"}
    }
    assert readers == {"__main__.py"}

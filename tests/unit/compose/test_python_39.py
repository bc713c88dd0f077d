"""The program runs on macOS's Python 3.9: its grammar and its imports."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "compose"
FILES = sorted(FOLDER.rglob("*.py"))
# Older versions of Python that this machine may have.
OLDER = [name for name in ("python3.9", "python3.10") if shutil.which(name)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_the_grammar_is_that_of_3_9(file):
    ast.parse(file.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_only_the_standard_library_is_imported(file):
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    assert found <= sys.stdlib_module_names | {"local_cluster", "machines"}


@pytest.mark.parametrize("python", [sys.executable, *OLDER])
def test_it_starts(python):
    command = [python, FOLDER / "cluster.py", "names", "up-local", "--given", "EPOCH"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No such file" in done.stderr or "not found" in done.stderr:
        pytest.skip("a name without a Python behind it")
    assert (done.returncode, "Did you mean EPOCHS?" in done.stderr) == (78, True), done.stderr


def test_it_leaves_no_bytecode_for_root_to_own(tmp_path):
    copy = shutil.copytree(
        FOLDER, tmp_path / "compose", ignore=shutil.ignore_patterns("__pycache__")
    )
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, copy / "cluster.py", "names"], env=environ, check=True)
    assert list(copy.rglob("__pycache__")) == []

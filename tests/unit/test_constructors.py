"""Constructors assign. They talk neither to other workers nor to a disk."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "trainer/cluster_trainer"
TALKS = {
    *("gather", "broadcast", "largest", "slowest", "barrier", "part", "renew"),
    *("accept", "connect", "recv", "send", "sendall"),
    *("glob", "iterdir", "mkdir", "open", "read_bytes", "read_text", "stat", "unlink"),
    *("write_bytes", "write_text", "write_whole", "make_folder"),
}


def called(node):
    """Return the name of the called function."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def talks(text):
    """Return the calls of a module's constructors that talk."""
    return [
        f"{node.lineno} {called(node)}"
        for constructor in ast.walk(ast.parse(text))
        if isinstance(constructor, ast.FunctionDef)
        and constructor.name in {"__init__", "__post_init__"}
        for node in ast.walk(constructor)
        if isinstance(node, ast.Call) and called(node) in TALKS
    ]


def test_constructors_assign():
    files = [*PACKAGE.rglob("*.py")]
    assert len(files) > 100
    assert [f"{file}:{call}" for file in files for call in talks(file.read_text())] == []


def test_a_constructor_that_talks_is_found():
    made = "class Made:\n    def __init__(self, file):\n        self.text = file.read_text()\n"
    assert talks(made) == ["3 read_text"]
    assert talks(f"{made}        self.rows = open(file)\n") == ["3 read_text", "4 open"]
    assert talks("class Made:\n    def read(self, file):\n        return open(file)\n") == []

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


def test_constructors_assign():
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {called(node)}"
        for file in PACKAGE.rglob("*.py")
        for constructor in ast.walk(ast.parse(file.read_text()))
        if isinstance(constructor, ast.FunctionDef)
        and constructor.name in {"__init__", "__post_init__"}
        for node in ast.walk(constructor)
        if isinstance(node, ast.Call) and called(node) in TALKS
    ]
    assert found == []

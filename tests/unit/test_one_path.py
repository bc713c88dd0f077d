"""Every `fit` goes through Keras's hook, that of the built-in trainer as well as a script's."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "trainer/cluster_trainer"
TRAINERS_OWN = ("builtin", "train", "api")


def modules_of(file):
    """Return the modules that a file imports, at any level."""
    nodes = [*ast.walk(ast.parse(file.read_text()))]
    return {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def test_the_hook_alone_calls_what_every_fit_gets():
    calling = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "cluster_trainer.fits.fit" in modules_of(file)
    ]
    assert calling == ["hook.py"]


@pytest.mark.parametrize("room", ["hook.py", "fits", "engine", "callbacks", "checkpoints"])
def test_without_the_trainers_own_room_scripts_have_all_they_need(room):
    files = [PACKAGE / room] if room.endswith(".py") else (PACKAGE / room).rglob("*.py")
    known = {module.split(".")[1] for file in files for module in modules_of(file) if "." in module}
    assert not known & {*TRAINERS_OWN}


def test_the_trainer_calls_the_models_fit_once_and_keeps_nothing_itself():
    calls = [
        node
        for file in (PACKAGE / "builtin").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "fit"
    ]
    modules = modules_of(PACKAGE / "builtin/complete.py")
    assert len(calls) == 1
    assert not [name for name in modules if name.startswith("cluster_trainer.fits.kept")]

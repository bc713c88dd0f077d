"""Private names of Keras and of TensorFlow are used in one module each."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TRAINER = Path(__file__).resolve().parents[3] / "trainer/cluster_trainer"
FILES = [one for one in TRAINER.rglob("*.py") if one.parent != TRAINER / "private"]
INSIDES = re.compile(r"(keras\.src|tensorflow\.python)\b.*")
PRIVATE = re.compile(r"_(?!cluster_trainer)[a-zA-Z]\w*")
IN_TEXT = re.compile(r"_(?!cluster_trainer)[a-z]\w*|_\w+Dataset")


def touched(node: ast.AST, *, in_class: bool = False) -> Iterator[str]:
    """Yield the internal modules that code imports, and the private attributes that it uses."""
    match node:
        case ast.Call(func=ast.Attribute(attr="endswith")):
            return  # a text's end may look like a name
        case ast.ImportFrom(module=str(name)) if INSIDES.fullmatch(name):
            yield name
        case ast.Import(names=names):
            yield from (one.name for one in names if INSIDES.fullmatch(one.name))
        case ast.Attribute(value=ast.Name(id="self" | "cls")) if in_class:
            return
        case ast.Attribute(attr="_exit" | "_replace"):
            pass  # of Python's own library, and public
        case ast.Attribute(attr=name) if PRIVATE.fullmatch(name):
            yield f"{node.lineno}: .{name}"
        case ast.Constant(value=str(name)) if IN_TEXT.fullmatch(name):
            yield f"{node.lineno}: {name!r}"
    is_text = isinstance(node, ast.JoinedStr)
    for child in ast.iter_child_nodes(node):
        if is_text and isinstance(child, ast.Constant):
            continue
        yield from touched(child, in_class=in_class or isinstance(node, ast.ClassDef))


def test_only_two_modules_know_them() -> None:
    found = {
        str(path.relative_to(TRAINER)): [*touched(ast.parse(path.read_text()))] for path in FILES
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_what_is_replaced_for_good_is_replaced_in_one_module() -> None:
    put_back = {"on_zeros.py", "check.py"}  # they restore the names
    found = {
        path.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and (node.attr in ("put_if", "wrap") or (node.attr == "put" and is_constant(node.value)))
    }
    assert found - put_back == {"install.py"}


def is_constant(node: ast.AST) -> bool:
    """Tell whether code names an attribute that the two modules let others replace."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Attribute) and name.attr.isupper()


@pytest.mark.parametrize(
    "line",
    [
        "from keras.src import tree",
        "import tensorflow.python.eager.context",
        "model._flatten_layers()",
        "def fit(self): self._compile_loss",
        "getattr(dataset, '_seed')",
    ],
)
def test_each_way_to_touch_one_is_seen(line: str) -> None:
    assert [*touched(ast.parse(line))] != []


@pytest.mark.parametrize("package", ["keras", "tensorflow"])
def test_they_were_read_in_the_version_that_the_image_has(package: str) -> None:
    said = ast.get_docstring(ast.parse((TRAINER / f"private/{package}_names.py").read_text()))
    lock = (TRAINER.parents[1] / "requirements/cpu.txt").read_text()
    versions = re.findall(rf"^{package}(?:-cpu)?==([\d.]+)", lock, re.MULTILINE)
    assert [one for one in versions if f" {one}," not in str(said)] == []

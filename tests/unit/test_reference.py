"""The reference agrees with the code. `make reference` writes its tables."""

import ast
import re
from collections.abc import Iterator

import pytest

from cluster_trainer.problems import ExitCode
from cluster_trainer.settings.config import setting_names
from scripts import reference

PRODUCT = ("entrypoint", "trainer", "compose")
MESSAGES = reference.ROOT / "docs/reference/messages.md"
BETWEEN_OUR_PROCESSES = "NOBODY_CAME"
EXIT_CODES = reference.ROOT / "docs/reference/exit-codes.md"


@pytest.mark.parametrize("page", reference.PAGES)
def test_no_table_is_out_of_date(page):
    text = (reference.ROOT / page).read_text()
    assert text == reference.made(text, reference.contents()), "run `make reference`"


def test_each_table_is_on_a_page():
    text = "".join((reference.ROOT / page).read_text() for page in reference.PAGES)
    assert sorted(mark[1] for mark in reference.MARK.finditer(text)) == sorted(reference.contents())


def test_each_setting_is_in_one_table():
    names = [name for group in reference.grouped().values() for name in group]
    assert names == setting_names()


def test_each_exit_code_has_a_line():
    code = re.compile(rf"^EXIT_(?!{BETWEEN_OUR_PROCESSES})[A-Z_]+ = (\d+)", re.MULTILINE)
    files = reference.PACKAGES["entrypoint"].rglob("*.py")
    used = {int(found) for file in files for found in code.findall(file.read_text())}
    lines = {
        int(found) for found in re.findall(r"^\| (\d+) \|", EXIT_CODES.read_text(), re.MULTILINE)
    }
    assert {*ExitCode, *used} <= lines


def said() -> Iterator[str]:
    """Yield the strings of the product's code. A newline replaces each value of an f-string."""
    for file in (file for name in PRODUCT for file in (reference.ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "\n" for part in node.values
                )
            elif isinstance(node, ast.Constant):
                yield str(node.value)


def test_each_message_is_said_somewhere():
    text = "\n".join(said())
    rows = re.findall(r"^\| (`.*?) \| ", MESSAGES.read_text(), re.MULTILINE)
    assert len(rows) > 10
    for message in (found for row in rows for found in re.findall(r"`([^`]+)`", row)):
        pieces = re.split(r"…|worker-\d|\b\d+\b(?!-)|\"|[:;.] |\(|\)", message)
        assert max(pieces, key=len).strip(" ,") in text, message


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package):
    assert reference.layers_of(reference.modules_of(package))


def test_a_circle_of_modules_is_found():
    with pytest.raises(ValueError, match=r"circle of imports.*: a, b$"):
        reference.layers_of({"a": {"b"}, "b": {"a", "c"}, "c": set()})

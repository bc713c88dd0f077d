"""The reference says what the code says; `make reference` writes its tables."""

import re

import pytest

from cluster_trainer.problems import ExitCode
from cluster_trainer.settings.config import setting_names
from scripts import reference

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


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package):
    assert reference.layers_of(reference.modules_of(package))


def test_a_circle_of_modules_is_found():
    with pytest.raises(ValueError, match=r"circle of imports.*: a, b$"):
        reference.layers_of({"a": {"b"}, "b": {"a", "c"}, "c": set()})

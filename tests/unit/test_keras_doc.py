"""docs/reference/keras.md names the programs that a test runs on several workers, and no others."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/reference/keras.md"
TEST = ROOT / "tests/cluster/test_keras_fit.py"
PROGRAMS = ROOT / "tests/cluster/keras_programs"


def test_each_program_is_in_a_table():
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    programs = {
        name
        for file in PROGRAMS.glob("*.py")
        for name in re.findall(r"^def (\w+)\(strategy\)", file.read_text(), re.MULTILINE)
    }
    assert len(programs) > 10
    assert programs <= named


def test_the_first_table_is_of_the_programs_that_end_as_on_one_device():
    table = DOCUMENT.read_text().split("| --- | --- |\n")[1].split("\n\n")[0]
    last = [re.fullmatch(r"\| .* \| `(\w+)` \|", row) for row in table.splitlines()]
    assert all(last)
    names = [found[1] for found in last]
    tested = TEST.read_text().split("TOLERANCES = {")[1].split("\n}")[0]
    assert sorted(names) == sorted(re.findall(r'"(\w+)"', tested))

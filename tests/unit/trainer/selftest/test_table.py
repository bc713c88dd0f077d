"""The table at the end: for people, for programs, and as an exit code."""

import json

import pytest

from cluster_trainer.selftest.table import WIDTH, Row, State, as_json, as_text, exit_code

HELD = Row(name="one", state=State.HELD, found="fine", seconds=1.2, facts={"rate": 3})
FAILED = Row(
    name="two", state=State.FAILED, found="broken", advice="Mend it.", seconds=9.0, log="last words"
)
NOT_TRIED = Row(name="three", state=State.NOT_TRIED, found="nothing here", advice="Mend it.")
ROWS = [HELD, FAILED, NOT_TRIED]


@pytest.mark.parametrize(
    ("rows", "code"), [([HELD], 0), ([HELD, NOT_TRIED], 0), (ROWS, 1), ([FAILED], 1)]
)
def test_only_a_failure_is_an_error(rows, code):
    assert exit_code(rows) == code


def test_the_text_has_a_line_for_each_part_and_the_details_of_failures():
    text = as_text("title", ROWS, ["Take the ring."])
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["one", "two", "three"]
    assert text.count("Mend it.") == 1
    assert "  | last words" in lines
    assert "Take the ring." in lines
    assert lines[-1] == "1 held, 1 failed, 1 not tried"


def test_long_texts_are_wrapped_in_their_column():
    row = Row(name="one", state=State.HELD, found="word " * 60)
    lines = as_text("title", [row], []).splitlines()[2:-2]
    column = lines[0].index("word")
    assert len(lines) > 2
    assert all(len(line) <= WIDTH and line.index("word") == column for line in lines)


def test_json_has_the_same():
    found = json.loads(as_json("title", ROWS, ["Take the ring."]))
    assert [part["state"] for part in found["parts"]] == ["held", "failed", "not tried"]
    assert found["parts"][0]["facts"] == {"rate": 3}
    assert [part["advice"] for part in found["parts"]] == ["", "Mend it.", ""]
    assert found["conclusion"] == ["Take the ring."]
    assert found["exit_code"] == 1

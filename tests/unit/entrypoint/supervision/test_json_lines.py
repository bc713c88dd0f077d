"""Each line that a command prints becomes a JSON object, and no text is lost."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.supervision.output.json_lines import LONGEST_LINE, LineCutter, as_json, level_of


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("plain", "INFO", "plain"),
        ("10:28:53 ERROR worker-1 no room", "ERROR", "no room"),
        ("10:28:53 CRITICAL worker-1 no room", "ERROR", "no room"),
        ("WARNING:tensorflow:slow", "WARNING", "WARNING:tensorflow:slow"),
        ("2026-11-21 10:28:53.123456: E tensorflow/x.cc:1] y", "ERROR", None),
        ("I0000 00:00:1795256933.123456      12 x.cc:99] y", "INFO", None),
        ("F0000 00:00:1795256933.123456      12 x.cc:99] y", "ERROR", None),
        ("Image saved", "INFO", "Image saved"),
    ],
)
def test_a_line_keeps_its_own_level(line: str, level: str, message: str | None) -> None:
    assert level_of(line, "INFO") == (level, line if message is None else message)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_lines_are_the_same_however_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    cutter = LineCutter()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    found = [line for piece in pieces for line in cutter.feed(piece)] + cutter.end()
    whole = data.removesuffix(b"\n").split(b"\n") if data else []
    assert found == [
        line.decode(errors="replace").rstrip("\r").rpartition("\r")[2] for line in whole
    ]


def test_a_line_without_end_is_cut() -> None:
    cutter = LineCutter()
    lines = cutter.feed(b"x" * (2 * LONGEST_LINE + 1))
    assert [len(line) for line in lines] == [LONGEST_LINE, LONGEST_LINE]
    assert cutter.end() == ["x"]


@given(st.text().filter(lambda line: not line.startswith("{")))
def test_any_line_becomes_an_object_with_four_members(line: str) -> None:
    members = json.loads(as_json(line, "worker-1", "INFO"))
    level, message = level_of(line, "INFO")
    assert members.pop("time")
    assert members == {"level": level, "worker": "worker-1", "message": message}


def test_an_object_keeps_its_members_and_gets_the_missing_ones() -> None:
    members = json.loads(as_json('{"level": "ERROR", "loss": 0.5}', "worker-1", "INFO"))
    assert members.pop("time")
    assert members == {"level": "ERROR", "worker": "worker-1", "loss": 0.5}


NOT_IN_JSON = ['{"loss": NaN}', '{"a": [-Infinity]}', '{"loss": 1e999}']


@pytest.mark.parametrize("line", ["{", "{" * 5000, "[1]", '{"a": 1} b', "{}}", *NOT_IN_JSON])
def test_what_only_looks_like_an_object_is_a_message(line: str) -> None:
    assert json.loads(as_json(line, "worker-1", "INFO"))["message"] == line

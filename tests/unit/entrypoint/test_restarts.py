from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.failure import LONGEST_CHARACTERS, failure_text
from entrypoint.restarts import LONGEST_DELAY_SECONDS, Progress, Restarts


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "progress"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_restarts_as_often_as_allowed(file: Path, limit: int) -> None:
    restarts = Restarts(limit, Progress(str(file)))
    assert [restarts.may_restart() for _ in range(limit + 2)] == [*[True] * limit, False, False]


def test_counts_anew_after_progress(file: Path) -> None:
    restarts = Restarts(1, Progress(str(file)))
    assert restarts.may_restart()
    file.write_text("1")
    assert restarts.may_restart()
    assert not restarts.may_restart()


def test_a_file_from_an_earlier_start_is_no_progress(file: Path) -> None:
    file.write_text("1")
    assert not Progress(str(file)).has_moved()


def test_waits_twice_as_long_each_time_and_never_too_long(file: Path) -> None:
    restarts = Restarts(100, Progress(str(file)))
    for longest in [1, 2, 4, 8, 16, 32, *[LONGEST_DELAY_SECONDS] * 90]:
        assert restarts.may_restart()
        assert longest / 2 <= restarts.delay_seconds() <= longest


@pytest.mark.parametrize(
    ("reason", "lines", "text"),
    [
        ("crash", [], "crash\n"),
        ("crash", ["a", "b"], "crash\na\nb\n"),
        ("crash", ["old" * 400, "b"], "crash\nb\n"),
        ("x" * 2000, ["a"], "x" * (LONGEST_CHARACTERS - 1) + "\n"),
    ],
)
def test_the_failure_text_keeps_the_reason_and_the_newest_lines(
    reason: str, lines: list[str], text: str
) -> None:
    assert failure_text(reason, lines) == text

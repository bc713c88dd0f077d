from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.supervision.failure_file import LONGEST_CHARACTERS, failure_text
from entrypoint.supervision.restarts import (
    LONGEST_DELAY_SECONDS,
    LONGEST_MEETING_DELAY_SECONDS,
    ProgressFile,
    Restarts,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "progress"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_restarts_as_often_as_allowed(file: Path, limit: int) -> None:
    restarts = Restarts(limit, 1, ProgressFile(str(file)))
    taken = [restarts.after(peer_lost=False).take() for _ in range(limit + 2)]
    assert taken == [*[True] * limit, False, False]


@pytest.mark.parametrize(("limit", "peers", "losses"), [(3, 1, 3), (3, 2, 6), (1, 9, 9), (0, 9, 0)])
def test_a_worker_outlasts_the_failures_of_all_its_peers(
    file: Path, limit: int, peers: int, losses: int
) -> None:
    restarts = Restarts(limit, peers, ProgressFile(str(file)))
    taken = [restarts.after(peer_lost=True).take() for _ in range(losses + 1)]
    assert taken == [*[True] * losses, False]
    assert restarts.after(peer_lost=False).take() == (limit > 0)


@pytest.mark.parametrize("peer_lost", [False, True])
def test_counts_anew_after_progress(file: Path, *, peer_lost: bool) -> None:
    restarts = Restarts(1, 1, ProgressFile(str(file)))
    take = lambda: restarts.after(peer_lost=peer_lost).take()  # noqa: E731
    assert take()
    file.write_text("1")
    assert take()
    assert not take()


def test_a_file_from_an_earlier_start_is_no_progress(file: Path) -> None:
    file.write_text("1")
    assert not ProgressFile(str(file)).has_moved()


@pytest.mark.parametrize(
    ("peer_lost", "longest"),
    [
        (False, [1, 2, 4, 8, 16, 32, *[LONGEST_DELAY_SECONDS] * 1090]),
        (True, [1, 2, *[LONGEST_MEETING_DELAY_SECONDS] * 1090]),
    ],
)
def test_waits_twice_as_long_each_time_and_never_too_long(
    file: Path, *, peer_lost: bool, longest: list[float]
) -> None:
    restarts = Restarts(1100, 1, ProgressFile(str(file))).after(peer_lost=peer_lost)
    for seconds in longest:
        assert restarts.take()
        assert seconds / 2 <= restarts.delay_seconds() <= seconds


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

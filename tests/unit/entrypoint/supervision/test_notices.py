"""TensorFlow's notices at import are removed from standard error, and nothing else."""

import pytest

from entrypoint.supervision.output.notices import NoticeFilter, are_unwanted

ABSL = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
ONE_DNN = (
    b"I0000 00:00:1795634340.932580       8 port.cc:153] oneDNN custom operations are on. You may "
    b"see slightly different numerical results due to floating-point round-off errors\n"
)
CPU = (
    b"I0000 00:00:1795634342.1 812 cpu_feature_guard.cc:227] This TensorFlow binary is optimized "
    b"to use available CPU instructions in performance-critical operations.\n"
    b"To enable the following instructions: AVX512F, rebuild TensorFlow.\n"
)
REAL = (
    b"E0000 00:00:1795634342.1 812 port.cc:153] oneDNN custom operations are on. Or not\n"
    b"F0000 00:00:1795634342.1 812 cpu_feature_guard.cc:9] compiled to use AVX, not available\n"
    b"To enable the following instructions: ask somebody\n"
    b"I0000 00:00:1795634342.1 812 gpu_device.cc:2022] Created device\n"
    b"\rno newline, but\r\x1b[2Kdrawn anew WARNING: All log messages"
)


@pytest.mark.parametrize("size", [1, 7, 64, 65_536])
def test_notices_go_and_all_else_passes_byte_by_byte(size):
    given = ABSL + ONE_DNN + b"mine\n" + ABSL + CPU + REAL
    notices = NoticeFilter()
    passed = [notices.feed(given[at : at + size]) for at in range(0, len(given), size)]
    assert b"".join([*passed, notices.end()]) == b"mine\n" + REAL


@pytest.mark.parametrize("begun", [b"Continue? ", b"I am ", b"12 "])
def test_a_line_that_cannot_be_a_notice_waits_for_nothing(begun):
    assert NoticeFilter().feed(begun) == begun


def test_a_second_line_is_one_only_right_after_the_first():
    first, second = CPU.splitlines(keepends=True)
    notices = NoticeFilter()
    assert notices.feed(first) + notices.feed(b"mi") + notices.feed(b"ne\n") == b"mine\n"
    assert notices.feed(second) == second


def test_no_line_is_held_back_for_ever():
    begun = ABSL.strip() + b"x" * 5_000
    assert NoticeFilter().feed(begun) == begun


def test_what_was_begun_when_the_command_ended_passes():
    notices = NoticeFilter()
    assert notices.feed(b"I0000 00:00") + notices.end() == b"I0000 00:00"


@pytest.mark.parametrize(
    ("level", "hides"), [(None, False), ("", False), ("0", False), ("1", True), ("2", True)]
)
def test_a_level_of_ones_own_decides(level, hides):
    assert are_unwanted(level) is hides

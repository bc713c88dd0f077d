"""Pending end marks get their final names. Other files stay as they are."""

import pytest

from entrypoint.log import Log
from entrypoint.supervision import end_marks


@pytest.fixture
def log():
    return Log("worker-0")


def write(folder, *names):
    marks = folder / "marks"
    for name in names:
        (folder / name).write_text("content")
    marks.write_text("".join(f"{folder / name}\n" for name in names))
    return marks


def test_each_gets_its_name(tmp_path, log):
    marks = write(tmp_path, "a.pending", "b.pending")
    end_marks.put(marks, "by", log)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "a.by", "b", "b.by"]
    assert (tmp_path / "a").read_text() == "content"


def test_what_is_no_mark_is_left_as_it_is(tmp_path, log):
    marks = write(tmp_path, "plain")
    (tmp_path / "link.pending").symlink_to(tmp_path / "plain")
    with marks.open("a") as more:
        more.write(f"{tmp_path / 'link.pending'}\n{tmp_path / 'absent.pending'}\n\0\n")
        more.write(f"{tmp_path}/{'x' * 300}.pending\n")
    end_marks.put(marks, "by", log)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.pending", "plain"]

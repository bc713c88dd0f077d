"""Files of an earlier run are moved aside, and not removed."""

import calendar
import contextlib
import shutil

import pytest

from cluster_trainer.fits.identity.moved_aside import finish, keep_newest, move_aside

BEGAN = calendar.timegm((2026, 11, 25, 10, 15, 0))


def leave(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)


def test_it_moves_into_a_folder_named_by_its_time(tmp_path):
    leave(tmp_path, "fit-1", "mine")
    place = move_aside(tmp_path, ["fit-1", "fit-2"], "train.py", BEGAN)
    assert place == tmp_path / "earlier/20261125-101500-train.py"
    assert (place / "fit-1/file").read_text() == "fit-1"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["earlier", "mine"]


def test_two_of_the_same_second_have_folders_of_their_own(tmp_path):
    places = []
    for _ in range(3):
        leave(tmp_path, "fit-1")
        places.append(move_aside(tmp_path, ["fit-1"], "../a b", BEGAN))
    assert len({*places}) == 3
    assert {one.parent for one in places} == {tmp_path / "earlier"}


def test_nothing_leaves_no_folder(tmp_path):
    assert move_aside(tmp_path, ["fit-1"], "train.py", BEGAN) is None
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("most", "left"), [(None, 3), (5, 3), (2, 2), (0, 0)])
def test_as_many_are_kept_as_the_user_says(tmp_path, most, left):
    for second in range(3):
        leave(tmp_path, "fit-1")
        move_aside(tmp_path, ["fit-1"], "train.py", BEGAN + second)
    keep_newest(tmp_path, most)
    there = sorted(one.name for one in (tmp_path / "earlier").iterdir())
    assert there == [f"20261125-10150{second}-train.py" for second in range(3 - left, 3)]


@pytest.mark.parametrize("killed_after", [0, 1, 2])
def test_a_run_that_a_killed_process_began_to_move_is_finished_in_one_folder(
    tmp_path, monkeypatch, killed_after
):
    leave(tmp_path, "fit-1", "fit-2")
    names, move = ["fit-1", "fit-2"], shutil.move
    killed = iter([False] * killed_after + [True])

    def move_until_killed(*paths):
        if next(killed, False):
            raise KeyboardInterrupt
        move(*paths)

    monkeypatch.setattr(shutil, "move", move_until_killed)
    with contextlib.suppress(KeyboardInterrupt):
        move_aside(tmp_path, names, "train.py", BEGAN)
    finish(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["earlier"]
    (place,) = (tmp_path / "earlier").iterdir()
    assert sorted(one.name for one in place.iterdir()) == names


def test_what_was_only_copied_is_not_lost(tmp_path):
    leave(tmp_path, "earlier/20261125-101500-a/fit-1", "fit-1")
    place = tmp_path / "earlier/20261125-101500-a"
    (place / "UNFINISHED").write_text('["fit-1"]')
    finish(tmp_path)
    assert sorted(one.name for one in place.iterdir()) == ["fit-1", "fit-1-again"]
    assert (place / "fit-1-again/file").read_text() == "fit-1"

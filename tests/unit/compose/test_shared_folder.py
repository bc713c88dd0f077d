"""Folders that workers can write: a link or device that they leave there is never followed."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local_cluster.shared_folder import LEFT_OVER_SECONDS, SharedFolder, refusal

KINDS = ["link", "link to a device", "FIFO", "folder"]


def leave(path, kind, victim):
    """Create an entry of a kind that a worker may leave at a path."""
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "FIFO":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.fixture
def victim(tmp_path):
    """A file of the user, which must be unchanged when the test ends."""
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine/file"
    file.write_text("mine")
    yield file
    assert file.read_text() == "mine"
    assert [one.name for one in file.parent.iterdir()] == ["file"]


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "runs/x").mkdir(parents=True)
    return SharedFolder(tmp_path / "runs", "x")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", ["read", "read_end", "open", "open_to_append"])
def test_only_regular_files_are_opened(shared, victim, kind, use):
    leave(shared.path / "file", kind, victim)
    with pytest.raises(OSError, match="x/file"):
        getattr(shared, use)("file")
    assert not shared.has_file("file")


@pytest.mark.parametrize("part", ["x", "x/worker-0", "x/worker-0/checkpoints"])
def test_no_part_of_a_path_may_be_a_link(tmp_path, victim, part):
    place = tmp_path / "runs" / part
    place.parent.mkdir(parents=True)
    place.symlink_to(victim.parent)
    folder = SharedFolder(tmp_path / "runs", "x/worker-0/checkpoints")
    for use in (folder.make, folder.make_new, lambda: folder.replace("file", b"theirs")):
        with pytest.raises(OSError, match=r"Not a directory|File exists"):
            use()
    assert folder.names() == []
    assert not folder.has_file("file")
    assert not folder.is_there()


def test_the_folder_that_is_mounted_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    SharedFolder(tmp_path / "runs", "x").make()
    assert (tmp_path / "disk/x").is_dir()


def test_nothing_above_it_is_reached(shared):
    assert shared.below("..").names() == []


@pytest.mark.parametrize("kind", ["link", "link to a device", "FIFO"])
def test_what_is_written_replaces_whatever_is_there(shared, victim, kind):
    for name in ("file", ".new-file", "latest", ".new-latest"):
        leave(shared.path / name, kind, victim)
    shared.replace("file", b"ours")
    shared.link("latest", "x")
    assert not (shared.path / "file").is_symlink()
    assert shared.read("file") == b"ours"
    assert shared.target_of("latest") == "x"


def test_a_file_is_read_from_either_end(shared):
    shared.replace("file", b"0123456789")
    assert (shared.read("file", 3), shared.read_end("file", 3)) == (b"012", b"789")
    with shared.open_to_append("file") as file:
        file.write(b"ab")
    assert shared.read_end("file", 3) == b"9ab"


def test_the_owner_of_links_is_changed_and_not_of_what_they_lead_to(shared, victim, monkeypatch):
    """Root hands over a run in which a worker has left links."""
    given = []

    def chown(name, *user, dir_fd, follow_symlinks):
        assert (user, follow_symlinks) == ((1, 2), False)
        given.append(Path(f"/proc/self/fd/{dir_fd}").readlink() / name)

    (shared.path / "worker-0").mkdir()
    (shared.path / "worker-0/file").touch()
    (shared.path / "worker-1").symlink_to(victim.parent)
    monkeypatch.setattr(os, "chown", chown)
    SharedFolder(shared.root).hand_over("x", 1, 2)
    names = ["", "worker-0", "worker-0/file", "worker-1"]
    assert sorted(given) == [shared.path / name for name in names]
    (shared.root / "y").symlink_to(victim.parent)
    given.clear()
    SharedFolder(shared.root).hand_over("y", 1, 2)
    assert given == [shared.root / "y"]


def test_two_that_replace_the_same_files_do_not_disturb_each_other(shared):
    def write(who):
        for _ in range(300):
            shared.link("latest", who)
            shared.replace(".file", who.encode())

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(write, ["a", "b"])] == [None, None]
    assert shared.target_of("latest") in ("a", "b")
    assert shared.names() == [".file", "latest"]


def test_what_a_crash_has_left_is_removed_and_not_what_another_start_is_writing(shared):
    for name in (".new-file", ".new-file-old", ".new-file-young"):
        (shared.path / name).touch()
    for name in (".new-file", ".new-file-old"):
        then = (shared.path / name).stat().st_mtime - LEFT_OVER_SECONDS - 60
        os.utime(shared.path / name, (then, then))
    shared.replace("file", b"mine")
    assert shared.names() == [".new-file-young", "file"]


def test_an_error_names_what_is_in_the_way_by_its_whole_path(shared):
    (shared.path / "there").mkdir()
    (shared.path / "file").touch()
    other = shared.below("other")
    (other.path / "file").mkdir(parents=True)
    uses = {
        "there": [lambda: shared.replace("there", b""), lambda: shared.link("there", "x")],
        "file": [shared.below("file/in/it").make, shared.below("file/new").make_new],
        "other/file": [lambda: shared.move("file", other)],
        "none": [lambda: shared.move("none", other), lambda: shared.target_of("none")],
    }
    for culprit, calls in uses.items():
        for use in calls:
            with pytest.raises(OSError) as caught:  # noqa: PT011 -- its file name is checked
                use()
            assert caught.value.filename == str(shared.path / culprit)
    assert shared.names() == ["file", "other", "there"]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENXIO])
def test_a_socket_is_to_be_removed_whatever_the_system_says_of_it(shared, number):
    place = str(shared.path / "socket")
    refused = refusal(shared, OSError(number, os.strerror(number), place))
    assert refused.sentences[0].startswith(place)

"""Workers whose machines come in another order continue their run from their own disks."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from cluster_trainer.fits.identity import moved_aside, renumbered
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task


class Together:
    """Workers in threads, which exchange numbers."""

    def __init__(self, count):
        self.count, self._barrier = count, threading.Barrier(count, timeout=20)
        self._numbers = [0] * count

    def of(self, rank):
        def gather(number, _what):
            self._numbers[rank] = number
            self._barrier.wait()
            told = list(self._numbers)
            self._barrier.wait()
            return told

        return SimpleNamespace(gather=gather)


def names_in(folder):
    return sorted(one.name for one in folder.glob("fit-*"))


@pytest.fixture
def start():
    """Start workers on disks; return the folders that they have taken over."""

    def run(*disks, may_take=None):
        together = Together(len(disks))

        def one(rank):
            job = Job(TrainerConfig(run_dir=disks[rank]), Task("worker", rank, len(disks)))
            job.folder.mkdir(parents=True, exist_ok=True)
            may = may_take is None or may_take[rank]
            return renumbered.take_over(job, together.of(rank), names_in, may_take=may)

        with ThreadPoolExecutor(len(disks)) as pool:
            taken = list(pool.map(one, range(len(disks))))
        return [one.name if one else None for one in taken]

    return run


@pytest.fixture
def disk(tmp_path):
    """Make a disk with workers' folders that have the named fits."""

    def make(name, **folders):
        for folder, fits in folders.items():
            for fit in fits:
                place = tmp_path / name / folder.replace("_", "-") / fit
                place.mkdir(parents=True)
                (place / "text").write_text(f"{name} {folder} {fit}")
        (tmp_path / name).mkdir(exist_ok=True)
        return tmp_path / name

    return make


def fits_on(disk):
    return {str(one.parent.relative_to(disk)) for one in disk.glob("*/*/text")}


def test_machines_in_another_order_continue(start, disk):
    a, b = disk("a", worker_1=["fit-1", "fit-2"]), disk("b", worker_0=["fit-1", "fit-2"])
    assert start(a, b) == ["worker-1", "worker-0"]
    assert fits_on(a) == {"worker-0/fit-1", "worker-0/fit-2"}
    assert fits_on(b) == {"worker-1/fit-1", "worker-1/fit-2"}
    assert (a / "worker-0/fit-1/text").read_text() == "a worker_1 fit-1"
    assert {one.name for disk in (a, b) for one in disk.glob("*/*")} == {"fit-1", "fit-2"}


def test_so_do_those_that_are_left_when_the_first_machine_leaves(start, disk):
    b, c, new = disk("b", worker_1=["fit-1"]), disk("c", worker_2=["fit-1"]), disk("new")
    assert start(b, c, new) == ["worker-1", "worker-2", None]
    assert fits_on(b) == {"worker-0/fit-1"}
    assert fits_on(c) == {"worker-1/fit-1"}


def test_one_that_is_left_alone_continues(start, disk):
    assert start(disk("b", worker_1=["fit-1"])) == ["worker-1"]


def test_nothing_is_moved_if_any_worker_has_its_run(start, disk):
    a, b = disk("a", worker_0=["fit-1"]), disk("b", worker_2=["fit-1"])
    assert start(a, b) == [None, None]
    assert fits_on(b) == {"worker-2/fit-1"}


def test_nothing_is_moved_if_a_worker_starts_over(start, disk):
    a, b = disk("a", worker_1=["fit-1"]), disk("b", worker_0=["fit-1"])
    assert start(a, b, may_take=[True, False]) == [None, None]
    assert fits_on(a) == {"worker-1/fit-1"}


def test_nothing_is_moved_to_where_an_earlier_run_was_moved_aside(start, disk):
    a = disk("a", worker_1=["fit-1"])
    (a / "worker-0" / moved_aside.FOLDER).mkdir(parents=True)
    assert start(a) == [None]


def test_nothing_is_moved_on_a_shared_disk(start, disk):
    shared = disk("shared", worker_2=["fit-1"])
    assert start(shared, shared) == [None, None]
    assert fits_on(shared) == {"worker-2/fit-1"}
    assert {one.name for one in shared.glob("*/*")} == {"fit-1"}


def test_other_folders_are_left_alone(start, disk):
    assert start(disk("a", mine=["fit-1"], worker_x=["fit-1"])) == [None]


def test_a_move_that_was_interrupted_is_finished(start, disk, monkeypatch):
    a = disk("a", worker_1=["fit-1", "fit-2"])

    def interrupted(source, folder, names):
        move(source, folder, names[:1])
        raise OSError("the power is gone")

    move = moved_aside.move
    with monkeypatch.context() as patch:
        patch.setattr(moved_aside, "move", interrupted)
        with pytest.raises(OSError, match="power"):
            start(a)
    assert fits_on(a) == {"worker-0/fit-1", "worker-1/fit-2"}
    start(a)
    assert fits_on(a) == {"worker-0/fit-1", "worker-0/fit-2"}
    assert {one.name for one in a.glob("*/*")} == {"fit-1", "fit-2"}

import errno
import os
import stat
import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cluster_trainer.checkpoints import saver as saving
from cluster_trainer.checkpoints.checkpoint import Checkpoint, Stage, number_of
from cluster_trainer.checkpoints.saver import Saver, touch
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.files import make_folder

pytestmark = pytest.mark.slow

WAITED_SECONDS = 60.0


def checkpoint(step=1, values=(), **fields):
    made = {
        "step": step,
        "stage": Stage.EPOCH,
        "settings": {"TRAINER_SEED": "42"},
        "progress": {"epochs": []},
        "names": [f"v{index}" for index in range(len(values))],
        "arrays": values,
    }
    return Checkpoint(**made | fields)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "checkpoints")


def files(store):
    return sorted(file.name for file in store.folder.iterdir())


def number(name):
    step, stage = name.partition("-")[0].split(".")
    return number_of(int(step), Stage(int(stage)))


def numbers(store):
    return [number(name) for name in files(store)]


def file_of(store, wanted):
    (file,) = [file for file in store.folder.iterdir() if number(file.name) == wanted]
    return file


# ---- form ---------------------------------------------------------------------------------------

ANY_ARRAY = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint32, np.float16]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
TEXTS = st.dictionaries(st.text(), st.text(), max_size=4)


@given(st.integers(0, 2**40), TEXTS, st.lists(ANY_ARRAY, max_size=4))
def test_what_is_read_is_what_was_written(step, settings, values):
    written = checkpoint(step, values, settings=settings)
    read = Checkpoint.from_bytes(written.to_bytes())
    assert (read.step, read.stage, read.settings) == (step, Stage.EPOCH, settings)
    assert read.number == written.number == 4 * step + 2
    assert (read.progress, read.names) == (written.progress, written.names)
    for got, expected in zip(read.arrays, values, strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes()


def test_anybody_can_read_a_file_with_numpy(store):
    store.write(7, checkpoint(7, [np.arange(3)]).to_bytes())
    with np.load(file_of(store, 7), allow_pickle=False) as members:
        assert b'"step": 7' in members["about"].tobytes()
        assert members["variable_00000"].tolist() == [0, 1, 2]


# ---- the folder ---------------------------------------------------------------------------------


def test_a_name_tells_the_step_and_what_was_done_after_it(store):
    for step, stage in ((9, Stage.TRAINED), (10, Stage.TRAINING), (9, Stage.EPOCH)):
        store.write(number_of(step, stage), b"content")
    assert [name.partition("-")[0] for name in files(store)] == [
        "00000009.1",
        "00000009.2",
        "00000010.0",
    ]
    assert store.newest().number == number_of(10, Stage.TRAINING)


def test_the_last_three_are_kept(store):
    for step in (10, 20, 30, 40, 50):
        store.write(step, b"content %d" % step)
    assert numbers(store) == [30, 40, 50]
    newest = store.newest()
    assert (newest.number, newest.content) == (50, b"content 50")


def test_there_are_never_more_than_three_on_the_disk(store, monkeypatch):
    seen = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (seen.append(len(files(store))), fsync(file)))
    for step in (10, 20, 30, 40, 50):
        store.write(step, b"content")
    assert max(seen) == 3


def test_a_step_is_there_once_whatever_its_content(store):
    store.write(10, b"before the evaluation")
    store.write(10, b"after it")
    assert numbers(store) == [10]
    assert store.newest().content == b"after it"


def test_what_is_further_than_a_place_moves_aside(store):
    for step in (10, 20, 30):
        store.write(step, b"content")
    place = store.set_aside_after(20)
    assert store.newest().number == 20
    assert [file.read_bytes() for file in place.iterdir()] == [b"content"]


def test_an_empty_or_missing_folder_holds_nothing(store):
    assert store.newest() is None
    store.folder.mkdir()
    assert store.newest() is None


def truncate(content):
    return content[: len(content) // 2]


def flip_a_bit(content):
    return content[:5] + bytes([content[5] ^ 1]) + content[6:]


def empty(_content):
    return b""


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty])
def test_a_damaged_file_is_removed_and_an_older_one_taken(store, warnings, damage):
    for step in (10, 20):
        store.write(step, b"content of %d" % step)
    newest = file_of(store, 20)
    newest.write_bytes(damage(newest.read_bytes()))
    assert store.newest().content == b"content of 10"
    assert f"checkpoint {newest.name} is damaged and was removed" in warnings.text
    assert numbers(store) == [10]


@given(st.binary(min_size=1, max_size=200), st.data())
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, content, data):
    store = Store(tmp_path_factory.mktemp("flipped"))
    store.write(1, content)
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    file_of(store, 1).write_bytes(damaged)
    assert store.newest() is None


def test_what_a_killed_run_left_unfinished_is_not_read_and_goes(store):
    store.write(10, b"content")
    (store.folder / ".unfinished.00000020.0-0123456789abcdef.npz").write_bytes(b"half")
    assert store.newest().number == 10
    store.tidy()
    assert numbers(store) == [10]


@pytest.fixture
def full(monkeypatch):
    """Let every fsync fail, as on a disk that has become full."""

    def fail(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)


def test_a_full_disk_leaves_the_older_ones(store, request):
    for step in (10, 20):
        store.write(step, b"content")
    request.getfixturevalue("full")
    with pytest.raises(OSError, match="No space left"):
        store.write(30, b"content")
    assert numbers(store) == [10, 20]


def test_a_file_system_that_cannot_sync_folders_will_do(store, monkeypatch):
    fsync = os.fsync

    def refuse_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    store.write(10, b"content")
    assert store.newest().number == 10


# ---- saving -------------------------------------------------------------------------------------


def test_a_saved_checkpoint_is_there_after_waiting(store):
    saved = []
    saver = Saver(store, lambda _: saved.append(True))
    for step in (1, 2, 3):  # the first starts the thread, which the others may find asleep
        saver.save(checkpoint(step))
    saver.wait()
    assert numbers(store) == [number_of(step, Stage.EPOCH) for step in (1, 2, 3)]
    assert saver.newest == 3
    assert saved == [True, True, True]


def test_one_that_is_followed_at_once_is_not_written(store, monkeypatch):
    monkeypatch.setattr(saving, "FOLLOWED_SECONDS", WAITED_SECONDS)
    saver = Saver(store, lambda _: None)
    saver.save(checkpoint(1), another_follows=True)
    saver.save(checkpoint(2), another_follows=True)
    saver.save(checkpoint(3))
    saver.wait()
    assert numbers(store) == [number_of(3, Stage.EPOCH)]


def test_one_that_nothing_follows_is_written_by_itself(store, monkeypatch):
    monkeypatch.setattr(saving, "FOLLOWED_SECONDS", 0.01)
    saved = threading.Event()
    saver = Saver(store, lambda _: saved.set())
    saver.save(checkpoint(1), another_follows=True)
    assert saved.wait(WAITED_SECONDS)
    assert numbers(store) == [number_of(1, Stage.EPOCH)]


def test_a_fit_that_ends_before_the_next_has_the_one_that_was_to_be_followed(store, monkeypatch):
    monkeypatch.setattr(saving, "FOLLOWED_SECONDS", WAITED_SECONDS)
    saver = Saver(store, lambda _: None)
    saver.save(checkpoint(1), another_follows=True)
    began = time.monotonic()
    saver.wait()
    assert time.monotonic() - began < WAITED_SECONDS
    assert numbers(store) == [number_of(1, Stage.EPOCH)]


def test_a_full_disk_costs_a_warning_and_not_the_run(store, request, warnings):
    saver = Saver(store, lambda _: pytest.fail("nothing was saved"))
    request.getfixturevalue("full")
    saver.save(checkpoint(30))
    saver.wait()
    assert saver.newest is None
    assert "the checkpoint of step 30 could not be saved" in warnings.text
    assert "No space left on device" in warnings.text


@pytest.fixture
def slow(monkeypatch):
    """Let each fsync wait until it may go on."""
    may_go_on, fsync = threading.Event(), os.fsync

    def wait(descriptor):
        assert may_go_on.wait(WAITED_SECONDS)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", wait)
    yield may_go_on
    may_go_on.set()


def test_what_another_worker_has_given_is_written_beside(store, slow):
    store.folder.mkdir()
    saver = Saver(store, lambda _: pytest.fail("it was saved before, by another"))
    saver.keep(number_of(5, Stage.EPOCH), b"content")
    assert store.newest() is None
    slow.set()
    saver.close()
    assert numbers(store) == [number_of(5, Stage.EPOCH)]
    assert saver.newest is None


def test_the_next_is_written_after_it(store, slow):
    saver = Saver(store, lambda _: None)
    threading.Timer(0.1, slow.set).start()
    saver.keep(number_of(5, Stage.EPOCH), b"content")
    saver.save(checkpoint(6))
    assert [*store.folder.glob("00000005.*")]  # the other may be unfinished still
    saver.close()
    assert numbers(store) == [number_of(step, Stage.EPOCH) for step in (5, 6)]


def test_what_does_not_fit_on_the_disk_costs_a_warning_as_well(store, request, warnings):
    saver = Saver(store, lambda _: None)
    request.getfixturevalue("full")
    saver.keep(number_of(30, Stage.EPOCH), b"content")
    saver.close()
    assert "the checkpoint of step 30 could not be saved" in warnings.text


@pytest.mark.parametrize("error", [MemoryError("no room"), TypeError("odd"), OSError("gone")])
def test_whatever_goes_wrong_in_the_writer_costs_a_warning(store, warnings, error):
    def fail(_):
        raise error

    saver = Saver(store, fail)
    saver.save(checkpoint(1))
    saver.save(checkpoint(2, progress={"not": object()}))
    saver.save(checkpoint(3))
    saver.close()
    assert str(error) in warnings.text
    assert "Object of type object is not JSON serializable" in warnings.text
    assert numbers(store) == [number_of(step, Stage.EPOCH) for step in (1, 3)]


def test_so_it_does_where_there_is_no_thread_to_be_had(store, warnings, monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    saver = Saver(store, lambda _: None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    saver.save(checkpoint(1))
    assert "can't start new thread" in warnings.text
    saver.wait()


def test_one_that_is_being_written_is_told_of(store, slow):
    saver = Saver(store, lambda _: None)
    assert not saver.is_busy
    saver.save(checkpoint(1), another_follows=True)
    assert not saver.is_busy  # it may be dropped
    saver.save(checkpoint(2))
    assert saver.is_busy
    slow.set()
    saver.wait()
    assert not saver.is_busy


def test_it_is_streamed_without_a_copy_of_its_arrays(store):
    """The file's name contains its digest, which is known only at the end."""
    saved = checkpoint(5, [np.ones(2**24, np.float32)])  # 64 MiB
    tracemalloc.start()
    store.stream(saved.number, saved.write)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3 * saved.arrays[0].nbytes
    newest = store.newest()
    np.testing.assert_array_equal(Checkpoint.from_bytes(newest.content).arrays[0], saved.arrays[0])


def test_a_touched_file_differs_each_time(tmp_path):
    file = tmp_path / "progress"
    seen = set()
    for _ in range(3):
        touch(file)
        seen.add((file.stat().st_mtime_ns, file.stat().st_size))
    assert len(seen) == 3


def test_a_progress_file_that_cannot_be_written_is_a_warning(tmp_path, warnings):
    touch(tmp_path / "missing" / "progress")
    assert "PROGRESS_FILE" in warnings.text


def test_a_checkpoint_survives_a_loss_of_power(store, disk):
    store.write(1, b"content")
    (name,) = files(store)
    unfinished = ".unfinished.00000000.1.npz"  # its digest is known at the end
    above = store.folder.parent.name
    first = [f"sync {above}"]  # it has the new folder
    written = [f"sync {unfinished}", f"rename {unfinished} {name}", f"sync {store.folder.name}"]
    assert disk == first + written


def test_so_do_all_folders_that_were_made_for_it(tmp_path, disk):
    make_folder(tmp_path / "a/b")
    assert disk == ["sync a", f"sync {tmp_path.name}"]
    make_folder(tmp_path / "a/b")
    assert len(disk) == 2

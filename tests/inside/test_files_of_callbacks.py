"""All workers get the files that the chief's callbacks write, at the same path, after the hook."""

import json
import os
from pathlib import Path

import h5py
import pytest
from meeting_place import MeetingPlace
from ring_peer import SECONDS, ring_of_two

from cluster_trainer.collectives.workers import WorkersOfRing
from cluster_trainer.fits.shared import files as shared_files
from cluster_trainer.fits.shared.files import ChiefsFiles
from cluster_trainer.fits.shared.written_files import named_alike
from conftest import quick_first


class OfPeer(ChiefsFiles):
    """The other worker's side; its disk is a folder beside the chief's."""

    def __init__(self, ring, disk, **options):
        super().__init__(WorkersOfRing(ring), [], disk / "run", **options)
        self.disk = disk

    def _take(self, file, newest):
        super()._take(self.disk / file.name, newest)


@pytest.fixture
def disks(tmp_path):
    both = tmp_path / "chief", tmp_path / "other"
    for disk in both:
        disk.mkdir()
    return both


@pytest.fixture
def two(disks):
    """Return a function that lets the chief `write`, shares its files and reads the other's."""
    chief, other = disks
    with ring_of_two() as peer:
        mine = ChiefsFiles(WorkersOfRing(peer.mine), [], chief / "run", goes_on=False)
        theirs = OfPeer(peer.ring, other, goes_on=False)

        def share(write=lambda: None, of_other=()):
            theirs.begin()
            for name in of_other:
                by_text(other / name)
            mine.begin()
            write()
            mine.end()
            shared = peer.calls(lambda _: theirs.share())
            mine.share()
            shared.result(SECONDS)
            return {one.name: one.read_bytes() for one in sorted(other.rglob("*")) if one.is_file()}

        yield share
        mine.let_go()


def by_text(file):
    file.write_text("written")


def change(file):
    file.write_text("another")


def by_h5py(file):
    with h5py.File(file, "w") as opened:
        opened["one"] = 1


def by_replacing(file):
    file.with_name("another").write_text("written")
    file.with_name("another").replace(file)


@pytest.mark.parametrize("write", quick_first(1, [by_text, by_h5py, by_replacing]))
def test_the_other_has_what_was_written(two, disks, write):
    file = disks[0] / "file"
    assert two(lambda: write(file)) == {"file": file.read_bytes()}


def test_what_is_written_on_is_given_again(two, disks):
    """CSVLogger opens its file once, and writes on in later hooks."""
    with (disks[0] / "log.csv").open("w") as log:

        def write(line):
            log.write(line)
            log.flush()

        # The log was opened before the hook. A write by name notes it, as if it were opened now.
        assert two(lambda: (by_text(disks[0] / "log.csv"), log.seek(0), write("one\n"))[-1])
        assert two(lambda: write("two\n"))["log.csv"].startswith(b"one\ntwo\n")


def test_what_the_chief_removes_is_removed(two, disks):
    files = [disks[0] / name for name in ("one", "two")]
    assert [*two(lambda: [by_text(one) for one in files])] == ["one", "two"]
    (disks[1] / "two").write_text("changed since")
    assert [*two(lambda: [one.unlink() for one in files])] == ["two"]


def test_what_the_others_callbacks_have_written_stays(two, disks):
    (disks[0] / "file").write_text("the chief's")
    assert two(lambda: change(disks[0] / "file"), of_other=["file"]) == {"file": b"written"}


def test_what_is_written_outside_of_callbacks_is_not_given(two, disks):
    by_text(disks[0] / "file")
    (disks[0] / "run").mkdir()
    assert two(lambda: by_text(disks[0] / "run" / "the trainers own")) == {}


def test_what_is_written_in_the_scripts_working_folder_is_given(two, disks, monkeypatch):
    """This includes files above the script's subfolder. Each worker has its own working folder."""
    own = disks[0] / "run/workspace"
    (own / "sub").mkdir(parents=True)
    monkeypatch.chdir(own / "sub")
    files = [own / "sub/beside", own / "above", Path("../by name")]
    names = ["above", "beside", "by name"]
    assert [*two(lambda: [by_text(one) for one in files])] == names
    assert [*two(lambda: by_text(Path("../../the trainers own")))] == names
    named = [str(named_alike(one, own)) for one in files]
    assert named == ["beside", "../above", "../by name"]


def test_what_is_too_much_is_said_once(two, disks, monkeypatch, caplog):
    # pytest also captures a log that does not propagate. If a test then lets it propagate, pytest
    # captures each message twice.
    monkeypatch.setattr(shared_files, "LARGEST_BYTES", 3)
    monkeypatch.setattr(shared_files, "MOST_FILES", 2)
    names = ["a", "b", "c"]
    found = two(lambda: [(disks[0] / name).write_text("ok") for name in names])
    assert [*found] == ["a", "b"]
    assert [*two(lambda: by_text(disks[0] / "large"))] == ["a", "b"]
    assert caplog.text.count("stays on this worker only") == 1


SCRIPT = """
import csv, glob, json, os, pathlib, shutil, sys
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
disk = pathlib.Path(sys.argv[1], f"disk-{RANK}")
disk.mkdir()
os.chdir(disk)
rows = np.random.default_rng(0).random((32, 3), np.float32)
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
seen = []

class OnChief(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if RANK == 0:
            np.save("latest.npy", np.full(3, epoch))
            self.model.save_weights("chiefs.weights.h5")
        pathlib.Path("each.txt").write_text(f"{RANK}")

class Reads(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        keras.models.load_model(sorted(glob.glob("ckpt_*"))[-1])
        seen.append(float(np.load("latest.npy")[0]))

    def on_epoch_begin(self, epoch, logs=None):
        seen.append(len(list(csv.DictReader(open("log.csv")))))

model.fit(rows, rows[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=[
    keras.callbacks.ModelCheckpoint("ckpt_{epoch}.keras"),
    keras.callbacks.CSVLogger("log.csv"), OnChief(), Reads(), keras.callbacks.TensorBoard("logs"),
])
model.fit(rows, rows[:, :1], batch_size=8, verbose=0, callbacks=[
    keras.callbacks.ModelCheckpoint("step_{batch}.weights.h5", save_freq=2, save_weights_only=True),
    keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs:
        seen.append(len(glob.glob("step_*")))),
] + ([keras.callbacks.Callback()] if RANK else []))  # others than the chief's
here = pathlib.Path(f"run-{RANK}")  # as one that is named by the time
here.mkdir()
model.fit(rows, rows[:, :1], batch_size=8, verbose=0, callbacks=[
    keras.callbacks.CSVLogger(here / "log.csv"),
    keras.callbacks.ModelCheckpoint(here / "{epoch}.keras"),
])
assert sorted(one.name for one in here.iterdir()) == ["1.keras", "log.csv"]
shutil.rmtree(here)
print("SEEN", json.dumps(seen), pathlib.Path("each.txt").read_text(), flush=True)
"""


def test_later_hooks_and_the_script_read_what_the_chief_has_written(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with MeetingPlace(tmp_path / "place", 2, str(script), str(tmp_path)) as place:
        assert place.wait() == [0, 0], place.logs
        lines = [
            line.split(maxsplit=1)[1]
            for worker in place.workers
            for line in worker.log.read_text().splitlines()
            if line.startswith("SEEN")
        ]
    seen = [json.loads(line.rpartition(" ")[0]) for line in lines]
    assert seen[1][:4] == seen[0][:4] == [0, 0.0, 1, 1.0]
    assert seen[1][4:] == [0, 0, 1, 1]  # before the next hook
    assert [line.rpartition(" ")[2] for line in lines] == ["0", "1"]
    chief, other = (contents(tmp_path / f"disk-{rank}") for rank in range(2))
    assert {*chief} == {*other}
    assert [name for name in chief if chief[name] != other[name]] == ["each.txt"]
    assert any("events.out.tfevents" in name for name in other)


def contents(disk):
    files = [Path(folder, name) for folder, _, names in os.walk(disk) for name in names]
    return {str(one.relative_to(disk)): one.read_bytes() for one in files}

"""All workers get the files that ModelCheckpoint has written on the chief, whatever they had."""

import json
import shutil
from pathlib import Path

import keras
import pytest
from meeting_place import MeetingPlace, steps_resumed
from ring_peer import SECONDS, ring_of_two

from cluster_trainer.collectives.workers import WorkersOfRing
from cluster_trainer.fits.shared.files import ChiefsFiles

STEP = 14
EX_TEMPFAIL = 75
WRITTEN, OLD = b"what the chief has written", b"of an earlier run"


def files_of(ring, callbacks, *, goes_on=True):
    return ChiefsFiles(WorkersOfRing(ring), callbacks, Path("run"), goes_on=goes_on)


@pytest.fixture
def shared(tmp_path):
    """Return a function that shares two workers' files, and returns them and the number lost."""

    def share(mine, theirs, name="best.keras", *, goes_on=False):
        written = []
        for rank, content in enumerate((mine, theirs)):
            (tmp_path / f"{rank}").mkdir()
            if content is not None:
                (tmp_path / f"{rank}" / name).write_bytes(content)
            written.append(keras.callbacks.ModelCheckpoint(str(tmp_path / f"{rank}" / name)))
        with ring_of_two() as peer:
            peers = peer.calls(
                lambda ring: files_of(ring, written[1:], goes_on=goes_on).share_best()
            )
            lost = files_of(peer.mine, written[:1], goes_on=goes_on).share_best()
            assert len(peers.result(SECONDS)[0]) == len(lost)
        files = [tmp_path / f"{rank}" / name for rank in range(2)]
        return [file.read_bytes() if file.exists() else None for file in files], len(lost)

    return share


@pytest.mark.parametrize("theirs", [None, OLD, WRITTEN], ids=["none", "an old one", "the same"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_all_have_the_chiefs(shared, theirs, goes_on):
    assert shared(WRITTEN, theirs, goes_on=goes_on) == ([WRITTEN, WRITTEN], 0)


def test_a_chief_that_has_lost_its_own_gets_it_back(shared):
    assert shared(None, WRITTEN, goes_on=True) == ([WRITTEN, WRITTEN], 0)


def test_what_the_chief_has_never_written_nobody_gets(shared):
    assert shared(None, OLD) == ([None, OLD], 0)


def test_it_is_told_which_is_lost(shared):
    assert shared(None, None, goes_on=True) == ([None, None], 1)


def test_a_disk_that_does_not_take_it_is_sent_each_once(tmp_path, caplog):
    mine, theirs = tmp_path / "mine.keras", tmp_path / "no-folder" / "theirs.keras"
    theirs.parent.write_text("a file")
    callbacks = [[keras.callbacks.ModelCheckpoint(str(one))] for one in (mine, theirs)]
    with ring_of_two() as peer:
        both = [
            files_of(ring, own) for ring, own in zip((peer.mine, peer.ring), callbacks, strict=True)
        ]
        for content in (b"the first", b"the first", b"a better one"):
            mine.write_bytes(content)
            peers = peer.calls(lambda _: both[1].share_best())
            assert both[0].share_best() == []
            assert peers.result(SECONDS) == [[]]
    assert caplog.text.count("could not be written here") == 2  # once for each content


@pytest.mark.parametrize("name", ["{epoch}.keras", "of-{epoch}/best.keras"])
def test_one_with_names_of_its_own_is_not_taken_for_lost(shared, name):
    assert shared(None, None, name, goes_on=True) == ([None, None], 0)


# The first epoch's loss is the largest, so that only its weights are written.
SCRIPT = """
import hashlib, json, os, pathlib, sys, time
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
disk = pathlib.Path(sys.argv[1], f"disk-{RANK}")
disk.mkdir(exist_ok=True)
os.chdir(disk)
keras.utils.set_random_seed(5)
inputs = np.random.default_rng(0).random((64, 3), np.float32)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
best = keras.callbacks.ModelCheckpoint(
    "best.weights.h5", monitor="loss", mode="max", save_best_only=True, save_weights_only=True)
slowly = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: time.sleep(0.2))

def fit(epochs, *callbacks):
    model.fit(inputs, inputs.sum(1), epochs=epochs, verbose=0, callbacks=[best, *callbacks])
    digests.append(hashlib.sha256(pathlib.Path("best.weights.h5").read_bytes()).hexdigest())

digests = []
"""
TWICE = "fit(2)\nbest.best = None\nfit(2)\n"
LOSES = "fit(20, slowly)\n"
LOSES_LATER = "fit(2)\nbest.best = None\nfit(20, slowly)\n"
END = "print('TOLD', json.dumps(digests), flush=True)\n"


def told(place):
    found = []
    for worker in place.workers:
        (line,) = [one for one in worker.log.read_text().splitlines() if one.startswith("TOLD")]
        found.append(json.loads(line.removeprefix("TOLD ")))
    return found


def workers(folder, program):
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(SCRIPT + program + END)
    return MeetingPlace(folder, 2, str(script), str(folder), TRAINER_CHECKPOINT_STEPS="2")


@pytest.mark.long
def test_a_second_fit_leaves_the_second_file(tmp_path):
    with workers(tmp_path / "run", TWICE) as place:
        assert place.wait() == [0, 0], place.logs
        one, other = told(place)
    assert one == other
    assert one[0] != one[1]


def kill(worker, folder):
    """Kill a worker in the midst of its last fit, and remove its script's files."""
    worker.kill()
    shutil.rmtree(folder / f"disk-{worker.rank}")


def is_in_midst(worker):
    return (worker.status.get("step") or 0) > STEP


@pytest.mark.long
@pytest.mark.parametrize("program", [LOSES, LOSES_LATER], ids=["first fit", "second fit"])
def test_it_outlives_the_chiefs_disk(tmp_path, program):
    with workers(tmp_path / "undisturbed", program) as place:
        assert place.wait() == [0, 0], place.logs
        expected = told(place)
    folder = tmp_path / "run"
    with workers(folder, program) as place:
        chief, other = place.workers
        place.when(lambda: is_in_midst(chief), "in the midst")
        kill(chief, folder)
        shutil.rmtree(folder / "run" / "worker-0")
        chief.start()
        if program == LOSES_LATER:  # a process survives only in its first fit
            assert other.process.wait(SECONDS) == EX_TEMPFAIL, place.logs
            other.kill()
            other.start()
        assert place.wait() == [0, 0], place.logs
        assert min(steps_resumed(place.logs)) > 0
        assert [one[-1] for one in told(place)] == [one[-1] for one in expected]


@pytest.mark.long
def test_what_all_have_lost_is_written_anew_and_said(tmp_path):
    folder = tmp_path / "run"
    with workers(folder, LOSES) as place:
        place.when(lambda: is_in_midst(place.workers[0]), "in the midst")
        for worker in place.workers:
            kill(worker, folder)
        for worker in place.workers:
            worker.start()
        assert place.wait() == [0, 0], place.logs
        one, other = told(place)
        assert one == other
        assert "best.weights.h5 is no longer on any worker's disk" in place.logs

"""Checkpoints, read from outside the containers."""

import pytest

from local_cluster.run import checkpoints
from local_cluster.shared_folder import SharedFolder

HEAD = b'PK\3\4settings.json{"TRAINER_SEED": "7", "TRAINER_GLOBAL_BATCH_SIZE": "96"}'


@pytest.fixture
def make(tmp_path):
    def of(worker, name, content=b"", place="checkpoints"):
        folder = tmp_path / f"worker-{worker}" / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        inside = SharedFolder(tmp_path, f"worker-{worker}/{place}")
        return checkpoints.CheckpointFile(inside, name, checkpoints.fit_of(place.partition("/")[0]))

    return of


def test_the_newest_of_any_worker(make, tmp_path):
    make(0, "00000100-aa.npz")
    newest = make(1, "100000000-bb.npz")
    make(1, "99999999-cc.npz")
    make(0, ".unfinished.999999999-dd.npz")
    make(2, "999999999-of-another-cluster.npz")
    assert checkpoints.newest(SharedFolder(tmp_path), 2) == newest
    assert newest.step == 100000000


def test_a_scripts_last_fit_counts_before_its_steps(make, tmp_path):
    make(0, "00000400-aa.npz", place="fit-2/checkpoints")
    newest = make(1, "00000007-bb.npz", place="fit-10/checkpoints")
    assert checkpoints.newest(SharedFolder(tmp_path), 2) == newest
    assert newest.place == "the newest checkpoint of fit 10"
    assert make(0, "00000100-aa.npz").place == "step 100"


def test_none_where_there_is_none(tmp_path):
    assert checkpoints.newest(SharedFolder(tmp_path), 2) is None


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (HEAD + b"\0" * 100_000, "96"),
        (b"\0" * ((1 << 20) - 40) + HEAD, "96"),  # across two of the chunks that are read
        (b"", None),
        (b"\xff" * 1000, None),
    ],
)
def test_the_global_batch_is_what_it_says(make, content, size):
    assert checkpoints.global_batch(make(0, "1-a.npz", content)) == size

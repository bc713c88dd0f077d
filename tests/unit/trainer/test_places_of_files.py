"""The places of callbacks' files on a worker, where the paths contain the time."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster_trainer.fits.shared.places import here, paths_of, renamed


def held(*paths):
    callbacks = [SimpleNamespace(path=one, patience=3, name="a") for one in paths]
    return {name: str(path) for name, path in paths_of(callbacks).items()}


@pytest.mark.parametrize(
    ("chiefs", "mine", "file", "expected"),
    [
        ("/tmp/run-1/best.h5", "/tmp/run-2/best.h5", "/tmp/run-1/log.csv", "/tmp/run-2/log.csv"),
        ("/tmp/run-11/tb", "/tmp/run-21/tb", "/tmp/run-11/tb/x", "/tmp/run-21/tb/x"),
        ("a/m-1-{epoch}.h5", "a/m-2-{epoch}.h5", "a/m-1-07.h5", "a/m-2-07.h5"),
        ("2/x.h5", "12/x.h5", "2/log.csv", "12/log.csv"),
        ("a/best.h5", "a/best.h5", "a/log.csv", "a/log.csv"),
        ("a/1.h5", "a/2.h5", "b/1.h5", "b/1.h5"),
        ("/out/l.csv", "/mnt/out/l.csv", "/out/l.csv", "/mnt/out/l.csv"),
        ("/mnt/out/l.csv", "/out/l.csv", "/mnt/out/l.csv", "/out/l.csv"),
        ("out/l.csv", "/tmp/x/out/l.csv", "out/l.csv", "/tmp/x/out/l.csv"),
        ("/out/l.csv", "/mnt/out/l.csv", "/other/l.csv", "/other/l.csv"),
        ("/data/run1", "/data/run2", "/data/run10/log.csv", "/data/run10/log.csv"),
        ("/data/run1/l.csv", "/data/run2/l.csv", "/data/run10/x", "/data/run10/x"),
        ("/data/run1", "/data/run2", "/data/run1", "/data/run2"),
        ("/r1/{epoch}.h5", "/r2/{epoch}.h5", "/r10/01.h5", "/r10/01.h5"),
    ],
)
def test_a_file_is_where_the_workers_own_callback_names_it(chiefs, mine, file, expected):
    assert here(Path(file), renamed(held(chiefs), held(mine))) == Path(expected)


def test_the_longest_beginning_counts():
    names = renamed(held("/a/1/x", "/a/1/b/3/x"), held("/a/2/x", "/a/2/b/4/x"))
    assert here(Path("/a/1/b/3/y"), names) == Path("/a/2/b/4/y")
    assert here(Path("/a/1/y"), names) == Path("/a/2/y")

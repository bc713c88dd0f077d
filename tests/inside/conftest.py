"""Four logical CPU devices stand in for four GPUs: the same code path under MirroredStrategy."""

import gc
import logging
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
import tensorflow as tf
from starts import Starts
from tensorflow.python.data.ops.multi_device_iterator_ops import OwnedMultiDeviceIterator

from cluster_trainer.checkpoints.saver import Saver
from cluster_trainer.fits import process_state
from cluster_trainer.fits.kept import checkpoint_callback

# Each process that a test starts is a new start, and so is each fit of a test; see starts.py.
for of_a_start in ("START_ID", "END_MARKS"):
    os.environ.pop(of_a_start, None)
# No other process of this run trains into the same folder.
os.environ["TRAINER_RUN_DIR"] = tempfile.mkdtemp(prefix="runs-")

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)


def keep_iterators():
    """Keep all multi-device iterators alive: TensorFlow takes up to 10 s to destroy one."""
    begin, kept = OwnedMultiDeviceIterator.__init__, []

    def begin_and_keep(iterator, *given, **named):
        kept.append(iterator)
        begin(iterator, *given, **named)

    OwnedMultiDeviceIterator.__init__ = begin_and_keep


keep_iterators()


@cache
def strategy_of(replicas):
    """Return the default strategy for one replica, else MirroredStrategy on that many CPUs."""
    if replicas == 1:
        return tf.distribute.get_strategy()
    # Strategies of several sizes in one process would use the same collective keys.
    # TensorFlow's own tests separate them in this way.
    tf.distribute.MirroredStrategy._collective_key_base = 1000 * replicas  # noqa: SLF001
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])


def quick_first(count, cases):
    """Return the cases of a parametrized test, all but the first `count` marked long."""
    first, rest = [*cases][:count], [*cases][count:]
    return [*first, *map(_long, rest)]


def _long(case):
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.long], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)


@pytest.fixture(scope="session")
def starts():
    """Start scripts in processes that have already imported TensorFlow."""
    return Starts()


@pytest.fixture(params=[2, *(pytest.param(one, marks=pytest.mark.long) for one in (1, 4))])
def strategy(request):
    return strategy_of(request.param)


@pytest.fixture(autouse=True)
def saves_at_the_end_of_each_epoch(monkeypatch):
    """Save at any cost, and never skip a save: the epochs of tests take milliseconds."""
    monkeypatch.setattr(checkpoint_callback, "SHARE", float("inf"))
    monkeypatch.setattr(Saver, "is_busy", False)


@pytest.fixture(autouse=True)
def runs_of_its_own(monkeypatch, tmp_path):
    """Give each test its own runs folder, without other tests' files and locks."""
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path / "runs"))


@pytest.fixture(autouse=True)
def log_that_is_seen(monkeypatch):
    """Let `caplog` see the log, whatever an earlier test's run has done to it."""
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)


@pytest.fixture
def keeps_nothing(monkeypatch):
    """Keep no checkpoints: no fit resumes another test's fit or locks the runs folder."""
    monkeypatch.setenv("TRAINER_CHECKPOINT_STEPS", "0")
    monkeypatch.setattr(process_state, "_present", process_state.Process())


class Beginnings(list):
    """The steps at which the fits of a test have begun, in order."""

    def note(self, kept):
        """Note a fit's first step; it belongs into the `found` of FitOptions."""
        self.append(kept.step)


@pytest.fixture
def began():
    """The steps at which a test's fits begin: the results would not show a start from scratch."""
    return Beginnings()


@pytest.fixture
def disk(monkeypatch):
    """The syncs and renames of files, in order, as `sync NAME` and `rename OLD NEW`."""
    events = []
    real_sync = os.fsync

    def fsync(descriptor):
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real_sync(descriptor)

    def noting(real):
        def rename(old, new, *more, **keywords):
            events.append(f"rename {Path(old).name} {Path(new).name}")
            real(old, new, *more, **keywords)

        return rename

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, noting(getattr(os, name)))
    return events


def pytest_collection_finish():
    """Collect garbage rarely and among fewer objects: it took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[STATUS] = exitstatus


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """End as the trainer does, without destructors; see keep_iterators."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(config.stash.get(STATUS, 1))

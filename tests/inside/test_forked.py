"""A process that a script forks inherits nothing that holds it up."""

import os

import pytest

from cluster_trainer.fits import process_state


@pytest.fixture
def parent(monkeypatch):
    """This process, without another test's script."""
    monkeypatch.setattr(process_state, "_present", process_state.Process())
    return process_state.present()


def in_a_child(tell):
    """Return the number that a forked child tells, from 0 to 254; 255 if it fails."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(int(tell()))
        finally:
            os._exit(255)  # no error makes the child go on with the tests
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_does_not_wait_for_its_parents_fit(parent):
    with parent.fitting, parent.beginning:
        present = process_state.present
        assert in_a_child(lambda: present().fitting.locked() or present().beginning.locked()) == 0
        assert parent.fitting.locked()


FORKS = """
import json, os, sys
import keras

keras.ops.ones(3) + 1
known = {*sys.modules}
child = os.fork()
if child == 0:
    print("TOLD", json.dumps(sorted({*sys.modules} - known)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_child_that_calls_nothing_imports_nothing(starts, tmp_path):
    """A script may fork for each of its files, after TensorFlow has begun."""
    (tmp_path / "script.py").write_text(FORKS)
    ended = starts.start(tmp_path / "script.py", run_dir=tmp_path)
    assert ended.told == [[]], ended.output

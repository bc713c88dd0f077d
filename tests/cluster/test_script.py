"""`make up-local SCRIPT=my/train.py`: a user's script, stopped and resumed."""

from pathlib import Path

import pytest

from harness.cluster import STOP

SCRIPT = Path(__file__).parent / "workspace/long_fit.py"
START_SECONDS = 90
END_SECONDS = 180


@pytest.fixture(scope="module")
def story(begin):
    """A run of a script until it was stopped, and the same run resumed without SCRIPT."""
    started = [begin(WORKERS=2, SCRIPT=SCRIPT, WORKSPACE_DIR="")]
    try:
        started[0].wait_for_text("Epoch 3/20", START_SECONDS)
        assert started[0].ask(STOP).returncode == 0
        stopped = started[0].end(END_SECONDS)
        started.append(started[0].resume())
        return stopped, started[1].end(END_SECONDS)
    finally:
        for cluster in started:
            cluster.stop()


def test_a_stop_saves_on_all_workers(story):
    stopped, _ = story
    assert stopped.code == 143, stopped.output
    assert "`make resume` resumes from the newest checkpoint of fit 1" in stopped.output
    saved = [bool([*worker.glob("fit-1/checkpoints/*.npz")]) for worker in stopped.workers]
    assert saved == [True, True]


def test_resume_goes_on_with_the_same_script(story):
    _, resumed = story
    resumed.raise_unless_done()
    assert "fit 1: resuming from step" in resumed.output
    assert "Epoch 1/20" not in resumed.output
    assert resumed.output.count("epochs 20") == 2


def test_what_is_said_to_be_there_is_what_a_script_leaves(story):
    end = story[1].output.rpartition("cluster-trainer: done")[2]
    assert f"results              {story[1].folder}" in end
    assert "model.keras" not in end

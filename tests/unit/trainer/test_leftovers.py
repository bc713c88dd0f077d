from pathlib import Path

import pytest

from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task


@pytest.fixture
def beginning(tmp_path):
    """Return a function that makes the leftovers that a new process of an entrypoint sees."""

    def make(entrypoint="1", *, is_restart=False, users_file=None):
        events = Path(f"/tmp/{entrypoint}/events.jsonl") if entrypoint else None
        job = Job(
            TrainerConfig(run_dir=tmp_path),
            Task(),
            progress_file=users_file,
            events_file=events,
            is_restart=is_restart,
        )
        job.folder.mkdir(exist_ok=True)
        return Leftovers(job)

    return make


def test_it_is_over_once_it_has_ended(beginning):
    first = beginning()
    assert not first.is_over
    first.end()
    assert first.is_over
    assert beginning(is_restart=True).is_over


def test_a_restart_before_it_had_ended_is_still_in_it(beginning):
    assert not beginning(is_restart=True).is_over


@pytest.mark.parametrize("users_file", [None, Path("/tmp/progress")])
def test_another_entrypoint_begins_another_run(beginning, users_file):
    """The user may give all entrypoints one PROGRESS_FILE."""
    beginning("1", users_file=users_file).end()
    assert not beginning("2", users_file=users_file).is_over
    assert not beginning("2", is_restart=True, users_file=users_file).is_over


def test_the_progress_file_tells_entrypoints_apart_that_keep_no_status(beginning):
    beginning("", users_file=Path("/tmp/1.progress")).end()
    one, other = (
        beginning("", is_restart=True, users_file=Path(f"/tmp/{number}.progress"))
        for number in (1, 2)
    )
    assert (one.is_over, other.is_over) == (True, False)


@pytest.mark.parametrize("is_restart", [False, True])
def test_without_an_entrypoint_a_restart_is_none(beginning, is_restart):
    one = beginning(entrypoint="", is_restart=is_restart)
    assert one.is_over == is_restart
    one.end()
    assert one.is_over


def test_a_folder_that_cannot_be_written_is_no_reason_to_end(beginning, tmp_path):
    one = beginning()
    (tmp_path / "worker-0").rmdir()
    one.end()
    assert one.is_over

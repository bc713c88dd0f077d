"""A worker's folder that cannot be written is refused in words, before anything else is done."""

import pytest

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.job import read_job


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "worker-0").write_text("")
    with pytest.raises(ConfigurationError) as error:
        read_job({"TRAINER_RUN_DIR": str(tmp_path)}, [])
    (problem,) = error.value.problems
    assert problem.name == "TRAINER_RUN_DIR"
    assert "worker-0" in problem.accepted


def test_so_is_a_folder_of_another_user(tmp_path, monkeypatch):
    folder = tmp_path / "worker-0"
    folder.mkdir()
    monkeypatch.setattr("os.access", lambda path, _: path != folder)
    with pytest.raises(ConfigurationError, match="worker-0"):
        read_job({"TRAINER_RUN_DIR": str(tmp_path)}, [])


def test_one_that_is_not_there_yet_is_made_later(tmp_path):
    assert read_job({"TRAINER_RUN_DIR": str(tmp_path)}, []).folder == tmp_path / "worker-0"

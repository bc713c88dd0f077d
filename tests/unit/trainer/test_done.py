import json

import pytest

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.results import done
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task


@pytest.fixture
def job(tmp_path):
    """Return a function that makes a job in an existing run directory."""

    def make(**settings):
        environ = {"TRAINER_RUN_DIR": str(tmp_path)}
        environ |= {f"TRAINER_{name.upper()}": str(value) for name, value in settings.items()}
        made = Job(TrainerConfig.read(environ, []), Task(index=1, num_workers=2))
        made.folder.mkdir(exist_ok=True)
        return made

    return make


def test_a_run_that_was_never_done_has_no_sentence(job):
    assert done.sentence_if_done(job()) == ""


def test_a_run_that_is_done_says_so(job):
    done.mark(job(epochs=3), 81)
    sentence = done.sentence_if_done(job(epochs=3))
    assert "this run is done (3 epochs, 81 steps)" in sentence
    assert str(job().folder) in sentence


def test_never_resume_trains_anew(job):
    done.mark(job(), 81)
    assert done.sentence_if_done(job(resume="never")) == ""


def test_another_run_in_the_same_folder_is_refused_with_all_that_differs(job):
    done.mark(job(), 81)
    with pytest.raises(ConfigurationError) as refused:
        done.sentence_if_done(job(learning_rate=0.5, seed=7))
    names = [problem.name for problem in refused.value.problems]
    assert names == ["TRAINER_LEARNING_RATE", "TRAINER_SEED"]
    assert "accepted: 42" in str(refused.value)


def test_what_only_this_worker_decides_may_differ(job):
    done.mark(job(), 81)
    assert done.sentence_if_done(job(threads=3, checkpoint_steps=5))


def test_more_epochs_go_on_where_the_learning_rate_allows_it(job):
    constant = {"learning_rate_schedule": "constant"}
    done.mark(job(epochs=3, **constant), 81)
    assert done.sentence_if_done(job(epochs=4, **constant)) == ""
    assert done.sentence_if_done(job(epochs=2, **constant))


def test_more_epochs_are_another_run_where_the_learning_rate_depends_on_them(job):
    done.mark(job(epochs=3), 81)
    with pytest.raises(ConfigurationError, match="TRAINER_EPOCHS"):
        done.sentence_if_done(job(epochs=4))


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_mark_that_cannot_be_read_is_none(job, text):
    (job().folder / done.FILE).write_text(text)
    assert done.sentence_if_done(job()) == ""


def test_the_mark_is_json(job):
    done.mark(job(epochs=3), 81)
    document = json.loads((job().folder / done.FILE).read_text())
    assert (document["steps"], document["epochs"]) == (81, 3)

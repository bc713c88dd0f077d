"""Workers may read different numbers in a loss, and one alone may stop early."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest

from cluster_trainer.checkpoints.checkpoint import Checkpoint, Stage
from cluster_trainer.checkpoints.resume import (
    CALLBACKS,
    DATA_NUMBERS,
    LAYERS_NUMBERS,
    NUMBERS,
    OF_A_WORKER,
    Found,
)
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.fits.kept.consistency_check import refuse_differing, refuse_others
from cluster_trainer.fits.kept.finding import Start
from cluster_trainer.problems import ConfigurationError
from conftest import quick_first

SECONDS = 30
TRAINED = {"the loss": "mse", NUMBERS: "[0]", LAYERS_NUMBERS: "[0]", CALLBACKS: "[stops]"}


class Pair(Workers):
    """One of two workers in this process."""

    count = 2
    rank = 0

    def __init__(self, rank, given, meet):
        self.rank, self._given, self._meet = rank, given, meet

    def _all(self, mine):
        self._given[self.rank] = mine
        self._meet.wait(SECONDS)
        found = [*self._given]
        self._meet.wait(SECONDS)
        return found

    def _rows(self, mine, what):  # noqa: ARG002
        return np.stack(self._all(mine))

    def broadcast(self, content, holder, what=""):  # noqa: ARG002
        return self._all(content)[holder]

    def part(self):
        return None


def began(begin):
    """Call `begin` for two workers at once; return the names of the problems that each raises."""

    def refused(rank):
        try:
            begin(rank)
        except ConfigurationError as error:
            return [one.name for one in error.problems]
        return []

    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(refused, range(2))]


def ended(described, saved=None, asked=({}, {}), stage=Stage.TRAINING):
    """Begin on two workers, with these facts and arguments; return the problems of each."""
    start = Start()
    if saved is not None:
        progress = {"place": {"stage": int(stage)}, "random": None}
        checkpoint = Checkpoint(1, stage, saved, progress, [], [])
        start = Start(1, Found(checkpoint, b"", "worker-0", is_here=True))
    given, meet = [None, None], Barrier(2)
    task = SimpleNamespace(name_of="worker-{}".format)
    options = SimpleNamespace(job=SimpleNamespace(task=task), cuts=(), compares_layers=True)

    def begin(rank):
        model, workers = SimpleNamespace(variables=[]), Pair(rank, given, meet)
        refuse_others(options, model, workers, start, described[rank], [], asked[rank])

    return began(begin)


@pytest.mark.parametrize(
    "saved", quick_first(1, [None, TRAINED]), ids=["at step 0", "from a checkpoint"]
)
@pytest.mark.parametrize("name", OF_A_WORKER)
def test_workers_train_whose_own_numbers_differ(name, saved):
    assert ended([TRAINED, TRAINED | {name: "[1]"}], saved) == [[], []]


def test_workers_with_different_losses_are_refused():
    assert ended([TRAINED, TRAINED | {"the loss": "mae"}]) == [["the loss"]] * 2


@pytest.mark.parametrize(
    ("name", "refused"), [*((name, []) for name in OF_A_WORKER), ("the loss", ["the loss"])]
)
def test_a_trainers_fit_compares_the_same_facts(name, refused):
    task, given, meet = SimpleNamespace(name_of="worker-{}".format), [None, None], Barrier(2)

    def begin(rank):
        refuse_differing(Pair(rank, given, meet), task, TRAINED | {name: f"[{rank}]"})

    assert began(begin) == [refused] * 2


@pytest.mark.parametrize("name", OF_A_WORKER)
def test_a_checkpoint_of_an_earlier_version_may_lack_some_numbers(name):
    saved = {what: value for what, value in TRAINED.items() if what != name}
    assert ended([TRAINED, TRAINED], saved) == [[], []]


def test_workers_that_are_asked_for_other_epochs_are_refused():
    asked = {"epochs": "3"}, {"epochs": "4"}
    assert ended([TRAINED] * 2, TRAINED, asked) == [["epochs"]] * 2


def test_numbers_of_pipelines_may_change_when_a_fit_resumes():
    saved, now = ({DATA_NUMBERS: number} for number in "12")
    assert ended([TRAINED | now] * 2, TRAINED | saved) == [[], []]


def test_the_result_of_a_fit_that_has_ended_is_not_taken_for_other_numbers_of_its_pipeline():
    saved, now = ({DATA_NUMBERS: number} for number in "12")
    found = ended([TRAINED | now] * 2, TRAINED | saved, stage=Stage.ALL)
    assert found == [[DATA_NUMBERS]] * 2
    assert ended([TRAINED | now] * 2, TRAINED | now, stage=Stage.ALL) == [[], []]


@pytest.mark.parametrize("name", [CALLBACKS, NUMBERS, LAYERS_NUMBERS])
def test_a_fit_whose_workers_all_have_another_number_does_not_resume(name):
    assert ended([TRAINED | {name: "[1]"}] * 2, TRAINED) == [[name]] * 2

"""Of one model's ended fits, only one keeps its weights on the disk."""

import shutil
import tracemalloc

import keras
import numpy as np
import pytest
from keeping import fits_run_by
from ring_peer import SECONDS, ring_of_two

from cluster_trainer.checkpoints.checkpoint import RUN, Checkpoint, Stage
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.checkpoints.without_weights import gone_from, lighten
from cluster_trainer.collectives.workers import WorkersOfRing
from cluster_trainer.engine import variable_reads
from cluster_trainer.fits.kept.ended_fits import EndedFits
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from conftest import quick_first

ROWS = np.ones((8, 100), np.float32)
WANTED = ROWS[:, :1]
OF_MODEL = "without the optimizer's state"


class Script:
    """Acts as the process of a script, with as many fits as a test asks for."""

    def __init__(self, folder, began):
        self.folder, self.began, self.fits, self.ended = folder, began, 0, EndedFits()
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)

    def model(self):
        model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(100)])
        model.add(keras.layers.Dense(1))
        model.compile("adam", "mse")
        return model

    def fit(self, model, epochs=1, **given):
        self.fits += 1
        job = Job(TrainerConfig(run_dir=self.folder, checkpoint_steps=100), Task())
        options = FitOptions(
            job=job,
            stop=StopRequest(print),
            deadline=Deadline(),
            folder=self.folder / f"fit-{self.fits}",
            described={},
            name=f"fit {self.fits}",
            ended=self.ended,
            found=self.began.note,
        )
        with fits_run_by(KeptFit(options, model).run):
            return model.fit(ROWS, WANTED, epochs=epochs, verbose=0, **given).history

    def have_weights(self):
        """Return whether each fit's checkpoint has the weights."""
        newest = [Store(self.folder / f"fit-{number + 1}").newest() for number in range(self.fits)]
        return [self._has_weights(Checkpoint.from_bytes(one.content)) for one in newest]

    @staticmethod
    def _has_weights(kept):
        """Return whether no weights are gone; OF_MODEL if only the optimizer's are."""
        gone = gone_from(kept.progress)
        of_optimizer = {place for place, name in enumerate(kept.names) if "adam" in name}
        return not gone or (OF_MODEL if gone <= of_optimizer else False)


@pytest.fixture
def script(tmp_path, began):
    yield lambda: Script(tmp_path, began)  # as if in a new process
    variable_reads.stop_listening()


def test_the_newest_fit_of_each_model_keeps_its_weights(script):
    first = script()
    one, other = first.model(), first.model()
    first.fit(other)
    for _ in range(4):
        first.fit(one)
    assert first.have_weights() == [True, False, False, False, True]


def test_another_start_comes_by_all_of_them_and_goes_on(script, began):
    first = script()
    model = first.model()
    expected = [first.fit(model) for _ in range(3)]
    weights = model.get_weights()
    again = script()
    model = again.model()
    assert [again.fit(model) for _ in range(3)] == expected
    assert began == [0, 0, 0, 1, 1, 1]
    for found, wanted in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert again.have_weights() == [False, False, True]


USES = {
    "evaluate": lambda model: model.evaluate(ROWS, WANTED, verbose=0),
    "predict": lambda model: model.predict(ROWS, verbose=0),
    "get_weights": lambda model: model.get_weights(),
    "call": lambda model: model(ROWS),
    "layer": lambda model: model.layers[0](ROWS),
    "save": lambda model: model.save("saved.keras"),
    "another model": lambda model: keras.Model(model.inputs, model.layers[0].output).predict(
        ROWS, verbose=0
    ),
}


KEPT = {"save": True}  # with the optimizer's state


@pytest.mark.parametrize("use", quick_first(2, USES))
def test_weights_that_the_script_uses_stay_and_are_never_other_ones(
    script, use, capsys, tmp_path, monkeypatch
):
    """If a script uses weights only at its second start, it is refused."""
    monkeypatch.chdir(tmp_path)
    first = script()
    model = first.model()
    first.fit(model)
    used = USES[use](model)
    for _ in range(3):
        first.fit(model)
    assert first.have_weights() == [KEPT.get(use, OF_MODEL), False, False, True]
    again = script()
    model = again.model()
    again.fit(model)
    if use == "evaluate":
        assert USES[use](model) == used
    again.fit(model)
    with pytest.raises(SystemExit) as ended:
        USES[use](model)
    assert ended.value.code == 78
    assert "the weights that fit 2 ended with" in capsys.readouterr().err


def test_weights_that_the_script_gives_itself_may_be_used(script):
    first = script()
    model = first.model()
    given = model.get_weights()
    for _ in range(3):
        first.fit(model)
    again = script()
    model = again.model()
    again.fit(model)
    model.set_weights(given)
    np.testing.assert_array_equal(model.get_weights()[0], given[0])


def test_a_fit_without_weights_cannot_go_on(script):
    first = script()
    model = first.model()
    for _ in range(3):
        first.fit(model)
    again = script()
    with pytest.raises(ConfigurationError, match="the epochs of the fit"):
        again.fit(again.model(), epochs=2)


def test_a_fit_does_not_begin_with_weights_that_are_gone(script):
    first = script()
    model = first.model()
    for _ in range(3):
        first.fit(model)
    for number in (2, 3):
        shutil.rmtree(first.folder / f"fit-{number}")
    again = script()
    model = again.model()
    again.fit(model)
    with pytest.raises(ConfigurationError, match="the weights that fit 1 ended with"):
        again.fit(model)


def test_what_one_workers_script_has_read_stays_on_all_workers(tmp_path):
    """All workers' checkpoints are equally new, and any of them may be given to all."""
    variables = [keras.Variable(np.ones((100, 100))) for _ in range(3)]
    both = [EndedFits(), EndedFits()]
    for rank, ended in enumerate(both):
        ended.note("fit 1", Store(tmp_path / f"{rank}"), variables)
    both[1]._note_read(variables[2])  # noqa: SLF001
    with ring_of_two() as peer:
        theirs = peer.calls(
            lambda ring: both[1].outdated_by("fit 2", variables, WorkersOfRing(ring))
        )
        (mine,) = both[0].outdated_by("fit 2", variables, WorkersOfRing(peer.mine))
        ((other,),) = theirs.result(SECONDS)
        assert (mine.read, other.read) == ({2}, {2})


@pytest.mark.long
def test_weights_are_removed_without_the_others_in_memory(tmp_path):
    arrays = [np.full(2**20, number, np.float64) for number in range(4)]
    names = [f"variable {number}" for number in range(4)]
    kept = Checkpoint(3, Stage.ALL, {}, {RUN: 1}, names, arrays)
    store = Store(tmp_path / "kept")
    store.stream(kept.number, kept.write)
    tracemalloc.start()
    lighten(store, {0, 1, 2})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found = Checkpoint.from_bytes(store.newest().content)
    assert most < arrays[0].nbytes
    assert [one.size for one in found.arrays] == [2**20] * 3 + [0]
    np.testing.assert_array_equal(found.arrays[2], arrays[2])


def test_an_optimizer_of_before_a_compile_holds_nothing(script):
    first = script()
    model = first.model()
    for _ in range(3):
        first.fit(model)
        model.compile("adam", "mse")
    assert first.have_weights() == [False, False, True]

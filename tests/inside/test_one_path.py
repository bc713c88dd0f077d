"""A script's `fit`, the built-in trainer's and `cluster_trainer.fit` go the same way."""

import keras
import numpy as np
import pytest
from noise import pictures

from cluster_trainer import api
from cluster_trainer.data.examples import DataSet
from cluster_trainer.fits import fit, process_state
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from cluster_trainer.train import build_run, complete
from conftest import strategy_of

ROWS, LABELS = np.ones((8, 3), np.float32), np.zeros(8, np.int64)


def compiled():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def script(_):
    compiled().fit(ROWS, LABELS, epochs=1, verbose=0)


def own_loop(folder):
    data = ((ROWS, LABELS), None)
    api.fit(compiled(), data, epochs=1, global_batch_size=4, run_dir=folder, model_dir=folder)


def trainer(folder):
    config = TrainerConfig(run_dir=folder, epochs=1, global_batch_size=16)
    job = Job(config, Task())
    job.folder.mkdir()
    data = DataSet("noise", pictures(16), pictures(16), 10)
    run = build_run(job, data, strategy_of(1))
    complete(run, StopRequest(print), Deadline(), Reporter(job.folder, 1))


@pytest.mark.parametrize(
    ("program", "whose"),
    [(script, "ScriptFit"), (own_loop, "TrainersFit"), (trainer, "TrainersFit")],
)
def test_every_fit_goes_one_way(tmp_path, monkeypatch, program, whose):
    seen, way = [], fit._trained  # noqa: SLF001

    def noted(one, *others):
        seen.append(type(one).__name__)
        return way(one, *others)

    monkeypatch.setattr(fit, "_trained", noted)
    monkeypatch.setattr(process_state, "_present", process_state.Process())
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    program(tmp_path)
    assert seen == [whose]
    assert process_state.present().programs == {}

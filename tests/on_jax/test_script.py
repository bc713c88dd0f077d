"""The settings that a script on JAX begins with, and the marks that it leaves at its end."""

import os
import subprocess
import sys

import pytest

from cluster_trainer.fits.script import variables
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.job import read_job

PLAIN = """
import keras, numpy as np
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((8, 2))
model.fit(x, x[:, :1], epochs=2, verbose=0)
"""
OF_ENTRYPOINT = ("END_MARKS", "START_ID", "STATUS_FILE")


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a script without an entrypoint, and returns its end."""

    def ended(text, **settings):
        script = tmp_path / "script.py"
        script.write_text(text)
        environ = {name: one for name, one in os.environ.items() if name not in OF_ENTRYPOINT}
        environ |= {"TRAINER_RUN_DIR": str(tmp_path / "runs")} | settings
        command = [sys.executable, str(script)]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    return ended


def marks_in(tmp_path):
    return [one.name for one in tmp_path.rglob("ENDED*")]


def states_in(tmp_path):
    (events,) = [one for one in tmp_path.rglob("events.jsonl") if "fit-" not in str(one)]
    return events.read_text()


def test_a_script_that_ends_well_leaves_a_mark(run, tmp_path):
    ended = run(PLAIN)
    assert ended.returncode == 0, ended
    assert marks_in(tmp_path) == ["ENDED"]
    assert '"done"' in states_in(tmp_path)


def test_a_script_that_fails_after_its_fit_has_not_ended(run, tmp_path):
    ended = run(PLAIN + "raise ValueError('mine')\n")
    assert ended.returncode == 1, ended
    assert not marks_in(tmp_path)
    assert '"done"' not in states_in(tmp_path)
    assert "had ended after" in run(PLAIN + "\n").stdout  # its fit is not trained again


def test_a_second_process_of_a_start_trains_and_saves_nothing(run, tmp_path):
    ended = [run(text, START_ID="a") for text in (PLAIN, PLAIN + "print(model.get_weights())")]
    assert [one.returncode for one in ended] == [0, 0], ended
    assert "are not saved" not in ended[0].stdout
    assert "are not saved" in ended[1].stdout
    assert "events.jsonl" not in ended[1].stdout
    assert states_in(tmp_path).count('"done"') == 1


def test_settings_that_do_nothing_are_named(run):
    ended = run(PLAIN, TRAINER_EPOCHS="3", TRAINER_TENSORBOARD="none")
    assert ended.returncode == 0, ended
    (line,) = [line for line in ended.stdout.splitlines() if "TRAINER_EPOCHS" in line]
    assert "TRAINER_TENSORBOARD" in line
    assert "TRAINER_RUN_DIR" not in ended.stdout


def test_a_folder_that_cannot_be_written_is_told(monkeypatch, caplog):
    def read(environ, arguments, given=None):
        if not given:
            raise ConfigurationError([Problem("TRAINER_RUN_DIR", "/runs", "writable")])
        return read_job(environ, arguments, given)

    monkeypatch.setattr(variables, "read_job", read)
    monkeypatch.setattr(variables, "start_log", lambda *_, **__: None)
    with caplog.at_level("WARNING", "trainer"):
        assert variables.read_variables({}, ()).config.checkpoint_steps == 0
    assert "TRAINER_RUN_DIR" in caplog.text
    with pytest.raises(ConfigurationError):
        variables.read_variables({"TRAINER_RUN_DIR": "/runs"}, ())

"""If a ring loses a worker, a script's calls beside `fit` end as a `fit` does."""

import atexit
import os
import re
import subprocess
import sys
import time
from functools import partial

import forks
import keras
import numpy as np
import pytest
import tensorflow as tf
from ring_peer import SECONDS, ring_of_two

from cluster_trainer import hook
from cluster_trainer.collectives.ring.errors import Aborted, OtherCall, PeerLeft, PeerLost
from cluster_trainer.engine import running
from cluster_trainer.engine.same_values import alike
from cluster_trainer.fits import process_state
from cluster_trainer.fits.program import Outcome
from cluster_trainer.fits.script import calls
from cluster_trainer.fits.script import end as ends_of_scripts
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem
from cluster_trainer.process import exit_code
from conftest import quick_first

MOMENT_SECONDS = 0.3  # a hundred times as long as two threads of this process take to meet
ROWS = np.ones([8, 3], np.float32)
TWO = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
CALLS = {
    "evaluate": lambda model: model.evaluate(ROWS, ROWS[:, :1], verbose=0),
    "predict": lambda model: model.predict(ROWS, verbose=0),
    "train_on_batch": lambda model: model.train_on_batch(ROWS, ROWS[:, :1]),
    "test_on_batch": lambda model: model.test_on_batch(ROWS, ROWS[:, :1]),
    "predict_on_batch": lambda model: model.predict_on_batch(ROWS),
}


class LeftError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def model(monkeypatch):
    """The model of a script of two workers; it raises LeftError instead of ending the process."""

    def leave(code, reason):
        raise LeftError(code, reason)

    monkeypatch.setenv("TF_CONFIG", TWO)
    monkeypatch.setattr(exit_code, "leave_process", leave)
    monkeypatch.setattr(
        process_state, "_present", process_state.Process()
    )  # none of another test's
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


@pytest.fixture
def peer():
    with ring_of_two() as made:
        yield made


@pytest.mark.parametrize("call", quick_first(3, CALLS.values()), ids=CALLS)
def test_a_lost_peer_ends_the_process_as_in_a_fit(model, peer, call):
    peer.ring.close()
    with pytest.raises(LeftError) as caught:
        call(model)
    code, reason = caught.value.args
    assert code == ExitCode.PEER_LOST
    assert "a peer was lost (PeerLeft: rank 1" in reason


def takes_values(model):
    """Return a call by which the peer takes the chief's values into its own model."""
    variables = [*model.variables, *model.optimizer.variables]
    return lambda ring: alike._take_from_chief(model, variables, ring)  # noqa: SLF001


def test_an_error_of_the_script_stays_its_own(model, peer):
    peer.calls(takes_values(model))
    with pytest.raises(ValueError, match="incompatible"):
        model.predict_on_batch(np.ones([2, 9]))


def test_few_rows_are_predicted_alone_with_the_chiefs_values(model, peer):
    """Each worker draws a built model's weights for itself."""
    theirs = keras.models.clone_model(model)
    theirs.compile("sgd", "mse")
    peers = peer.calls(takes_values(theirs))  # and gathers nothing
    predictions = [model.predict_on_batch(ROWS)]
    peers.result(SECONDS)
    np.testing.assert_array_equal(theirs.get_weights()[0], model.get_weights()[0])
    predictions += [model.predict_on_batch(ROWS), model.predict(ROWS, verbose=0)]
    expected = [model.get_weights()[0].sum()] * len(ROWS)
    for found in predictions:
        assert found[:, 0].tolist() == pytest.approx(expected)


def test_within_a_fit_it_is_the_fits_affair(model, peer):
    peer.ring.abort("a test")
    with running.announced(running.Running(is_fit=True)), pytest.raises(Aborted):
        model.evaluate(ROWS, ROWS[:, :1], verbose=0)


def test_without_other_workers_nothing_is_done(model, monkeypatch):
    monkeypatch.delenv("TF_CONFIG")
    for call in CALLS.values():
        call(model)
    assert process_state.present().calls is None


@pytest.mark.parametrize(("begun", "warnings"), [(None, 1), (object(), 0)])
def test_who_computes_alone_is_told_so_once(model, monkeypatch, begun, warnings):
    """This happens with GPUs, for example. A `fit` that has begun has said so itself."""
    process_state.present().script = begun
    said = []
    monkeypatch.setattr(calls.log, "warning", said.append)
    for _ in range(2):
        model.train_on_batch(ROWS, ROWS[:, :1])
    assert len(said) == warnings
    assert all("train_on_batch" in one and "alone" in one for one in said)


@pytest.mark.parametrize(
    ("changes", "meets"),
    [
        ({}, True),
        ({"calls": Outcome.FAILED}, False),
        ({"pid": 1}, False),
    ],
    ids=["well", "failed", "in a fork"],
)
def test_a_script_without_a_fit_meets_the_others_at_its_end(
    model, peer, monkeypatch, changes, meets
):
    ends = []
    monkeypatch.setattr(atexit, "register", lambda *call: ends.append(partial(*call)))
    mine = process_state.present()
    calls.call(mine, lambda: None, model.distribute_strategy, os.environ)
    for name, value in changes.items():
        setattr(mine, name, value)
    barrier = peer.calls(lambda ring: ring.barrier(what="the end of its program"))
    (end,) = ends
    end()
    if meets:
        assert barrier.exception(SECONDS) is None
        return
    with pytest.raises(TimeoutError):
        barrier.exception(MOMENT_SECONDS)


def test_an_error_that_a_script_has_got_over_keeps_it_from_no_meeting(model, monkeypatch):
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    with pytest.raises(ValueError, match="incompatible"):
        model.predict_on_batch(np.ones([2, 9]))
    assert process_state.present().calls is Outcome.FAILED
    model.predict_on_batch(ROWS)
    assert process_state.present().calls is Outcome.WELL


def test_after_a_fit_its_own_end_is_the_meeting(model, peer, monkeypatch):
    ends = []
    monkeypatch.setattr(atexit, "register", lambda *call: ends.append(partial(*call)))
    process_state.present().script = object()
    calls.call(process_state.present(), lambda: None, model.distribute_strategy, os.environ)
    peer.ring.close()
    ends[0]()
    assert peer.mine.error is None  # nobody has asked


def test_a_script_that_waits_for_others_who_do_not_come_leaves_them(model, peer, monkeypatch):
    ends = []
    monkeypatch.setattr(atexit, "register", lambda *call: ends.append(partial(*call)))
    monkeypatch.setattr(ends_of_scripts, "LEAVING_SECONDS", 0.1)
    calls.call(process_state.present(), lambda: None, model.distribute_strategy, os.environ)
    began = time.monotonic()
    ends[0]()
    assert time.monotonic() - began < SECONDS
    assert isinstance(peer.mine.error, PeerLeft)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PeerLost("rank 1 was lost"), ExitCode.PEER_LOST),
        (tf.errors.UnavailableError(None, None, "Socket closed"), ExitCode.PEER_LOST),
        (OtherCall("rank 1 is at predict"), ExitCode.BAD_CONFIGURATION),
        (ConfigurationError([Problem("a", "b", "c")]), ExitCode.BAD_CONFIGURATION),
        (ValueError("my own"), None),
        (KeyboardInterrupt(), None),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.usefixtures("model")
def test_an_error_that_nobody_catches_is_shown_and_tells_of_a_lost_peer(error, code):
    shown, codes = [], []
    tell = hook._telling_of_lost_peers(lambda *given: shown.append(given))  # noqa: SLF001
    try:
        tell(type(error), error, None)
    except LeftError as left:
        codes.append(left.args[0])
    is_refusal = isinstance(error, ConfigurationError)
    assert shown == ([] if is_refusal else [(type(error), error, None)])
    assert codes == ([] if code is None else [code])


def script(program, *arguments, **environ):
    """Run a script of two workers to its end."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "TF_CONFIG": TWO, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_keras_import_sees_to_errors_that_nobody_catches_and_to_how_lines_look():
    """Lines before the first fit, such as of a script's own loop, look like all others."""
    program = "import keras, logging; logging.getLogger('trainer').warning('alone')"
    error = "from cluster_trainer.collectives.ring.errors import PeerLost as Lost"
    ended = script(f"{program}; {error}; raise Lost('rank 1 was lost')")
    assert ended.returncode == ExitCode.PEER_LOST, ended.stderr
    assert "Traceback" in ended.stderr
    (line,) = [one for one in (ended.stdout + ended.stderr).splitlines() if "alone" in one]
    assert re.fullmatch(r"[0-9:]{8} WARNING worker-0 alone", line)


REFUSED = """
import threading, keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
x = np.ones([8, 1], "float32")
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", lambda y, mine: tf.reduce_sum(tf.square(y - mine)))

def call():
    try:
        model.evaluate(x, x, batch_size=8, verbose=0)
    except Exception:
        print("TOLD 1")

{call}
print("TOLD 2")
"""
IN_A_THREAD = "thread = threading.Thread(target=call); thread.start(); thread.join()"


@pytest.mark.parametrize("call", quick_first(1, ["call()", IN_A_THREAD]), ids=["call", "thread"])
def test_what_is_refused_ends_a_script_that_trains_alone(starts, tmp_path, call):
    (tmp_path / "script.py").write_text(REFUSED.format(call=call))
    ended = starts.start(tmp_path / "script.py", run_dir=tmp_path, TRAINER_FIRST_BATCH="refuse")
    assert (ended.code, ended.told) == (ExitCode.BAD_CONFIGURATION, []), ended.output
    assert "first batch of evaluation" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("variable", "accepted"),
    [
        ("TRAINER_COLLECTIVES", "auto, tensorflow"),
        pytest.param("CLUSTER_TRAINER_ENGINE", "on or off", marks=pytest.mark.long),
    ],
)
def test_keras_import_refuses_an_engine_and_sums_that_do_not_exist(variable, accepted):
    ended = script("import keras", **{variable: "rings"})
    assert ended.returncode == ExitCode.BAD_CONFIGURATION, ended.stderr
    assert f'{variable}: received "rings"; accepted: {accepted}' in ended.stderr
    assert "Traceback" not in ended.stderr


OWN_CONFIGS = [
    *('{"cluster": {"worker": ["a:1", "b:1"]}}', "", "{", "[]", "null", '"text"', "{}"),
    *('{"task": {}}', '{"cluster": null, "task": {"type": "worker", "index": 0}}'),
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": null, "index": "first"}}',
]
OWN = f"""
import os, sys
own_configs = {OWN_CONFIGS}
os.environ["TF_CONFIG"] = own_configs[0]
import keras, numpy as np
x = np.ones((4, 1))
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for text in own_configs:
    os.environ["TF_CONFIG"] = text
    model.evaluate(x, x, verbose=0)
    model.train_on_batch(x, x)
    model.fit(x, x, verbose=0)
    sys.excepthook(ValueError, ValueError("shown", text), None)
del os.environ["TF_CONFIG"]
raise ValueError("the script's own")
"""


@pytest.mark.parametrize("start", quick_first(1, [TWO, ""]), ids=["of two", "alone"])
def test_no_tf_config_of_a_scripts_own_fails_in_ours(tmp_path, start):
    ended = script(OWN, TF_CONFIG=start, TRAINER_RUN_DIR=str(tmp_path))
    said = ended.stdout + ended.stderr
    assert (ended.returncode, said.count("Traceback")) == (1, 1), said
    assert said.count("ValueError: ('shown'") == len(OWN_CONFIGS), said
    assert ended.stderr.rstrip().endswith("ValueError: the script's own"), said
    assert ("counts as the only worker" in said) == (not start), said


FITS = """
import keras, numpy as np
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(2):
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
"""


STARTS = "from cluster_trainer import start_strategy; start_strategy()"


@pytest.fixture
def forked(tmp_path):
    """Return a function that runs a script of two workers in a fork; it returns code and output."""

    def run(program, **environ):
        file, printed = tmp_path / "script.py", tmp_path / "printed"
        file.write_text(program)
        variables = {**os.environ, "TF_CONFIG": TWO, "TRAINER_RUN_DIR": str(tmp_path), **environ}
        return forks.start([file], variables, printed, folder=tmp_path).wait(), printed.read_text()

    return run


@pytest.mark.parametrize(
    "before", ["", pytest.param(STARTS, marks=pytest.mark.long)], ids=["plain", "started"]
)
def test_a_fit_names_the_settings_that_nothing_heeds(forked, before):
    heeded = {"TRAINER_RESUME": "never", "TRAINER_WIRE": "float32", "TRAINER_THREADS": "1"}
    unused = {"TRAINER_SEED": "3", "TRAINER_EPOCHS": "5", "TRAINER_STOP_SECONDS": "9"}
    own = {"TRAINER_DEVICES": "CPU:0", "TF_CONFIG": ""}
    code, said = forked(before + FITS, **own, **heeded, **unused)
    assert code == 0, said
    (line,) = [one for one in said.splitlines() if "fit ignores" in one]
    names = "TRAINER_EPOCHS, TRAINER_SEED, TRAINER_STOP_SECONDS"
    assert f"ignores {names}: the script" in line


@pytest.mark.parametrize(
    ("least", "count"), [("1", 1), pytest.param("2", 0, marks=pytest.mark.long)]
)
def test_a_fit_whose_sums_are_not_a_rings_says_that_it_needs_all_workers(forked, least, count):
    code, said = forked(FITS, MIN_WORKERS=least, TRAINER_COLLECTIVES="tensorflow")
    assert code == 0, said
    assert said.count("MIN_WORKERS has no effect") == count

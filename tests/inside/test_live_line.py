"""The live line on a terminal, and the plain lines elsewhere."""

import os
import pty
import subprocess
import sys

import pytest

ESCAPE = b"\x1b"
DRAWS = """
import logging
from cluster_trainer.results.on_screen.progress import Progress
from cluster_trainer.results.on_screen.report import start_log
from cluster_trainer.settings.view import read_view
import os
screen = start_log("worker-0", view=read_view(os.environ, is_chief=True))
screen.show(Progress("training", 2, 30, 5, 10, {"loss": 0.25}, seconds_left=77.4))
logging.getLogger("trainer").info("a [red]line[/red]")
logging.getLogger("trainer").info("epoch 2/30  training", extra={"is_live": True})
screen.hide()
print("after")
"""
FIT = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import keras, numpy as np
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
inputs = np.zeros((64, 1))
model.fit(inputs, inputs, batch_size=8, epochs=2)
model.predict(inputs)
"""


def printed_in_a_terminal(program, **environ):
    ours, theirs = pty.openpty()
    environ = {
        **os.environ,
        "TERM": "xterm",
        "COLUMNS": "100",
        "CUDA_VISIBLE_DEVICES": "",
        **environ,
    }
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    ) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                printed += os.read(ours, 65536)
            except OSError:  # nobody writes any more
                break
    os.close(ours)
    assert process.returncode == 0, printed
    return printed


def test_a_terminal_has_one_line_below_the_others():
    printed = printed_in_a_terminal(DRAWS)
    live, _, _after = printed.rpartition(b"after")
    assert b"epoch 2/30" in live
    assert "━".encode() in live
    assert b"5/10 1:17 left  loss 0.2500" in live
    assert b"INFO worker-0 a [red]line[/red]\r\n" in live
    assert b"training" not in live  # the live line shows it already
    assert b"\x1b[?25l" not in printed  # a hidden cursor would stay hidden after a kill


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_plain_terminal_has_lines_alone(environ):
    printed = printed_in_a_terminal(DRAWS, **environ)
    assert ESCAPE not in printed
    assert b"INFO worker-0 epoch 2/30  training\r\n" in printed


def test_keras_draws_no_bar_into_a_pipe(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FIT],
        env={**os.environ, "TRAINER_RUN_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    lines = done.decode().splitlines()
    assert not {"\x1b", "\b", "\r"} & {*done.decode()}, done
    assert [line for line in lines if line.startswith("Epoch")] == ["Epoch 1/2", "Epoch 2/2"]
    assert sum("8/8 - " in line for line in lines) == 2, lines


def test_keras_draws_its_bar_on_a_terminal(tmp_path):
    assert "━".encode() in printed_in_a_terminal(FIT, TRAINER_RUN_DIR=str(tmp_path))

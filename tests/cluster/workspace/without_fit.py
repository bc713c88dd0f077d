"""A script for two workers that never calls `fit`. Its argument selects a disturbance."""

import errno
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import keras
import numpy as np

what, config = sys.argv[1], json.loads(os.environ["TF_CONFIG"])
index, addresses = config["task"]["index"], config["cluster"]["worker"]
folder = Path(os.environ["TRAINER_RUN_DIR"])
keras.utils.set_random_seed(1)
inputs = np.random.default_rng(2).normal(size=(64, 6)).astype("float32")
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")


def knock(address):
    """Connect to a worker's advertised port like a stranger; return the error's name, or "open"."""
    host, port = address.split(":")
    with socket.socket() as stranger:
        return errno.errorcode.get(stranger.connect_ex((host, int(port))), "open")


for _ in range(3):
    model.train_on_batch(inputs, inputs[:, :1])
if what == "lost" and index == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "chief-predicts" and index == 0:
    model.predict(np.resize(inputs, (300, inputs.shape[1])), verbose=0)  # few rows stay local
loss = model.evaluate(inputs, inputs[:, :1], verbose=0)
(folder / f"pid-{index}").write_text(str(os.getpid()))
if index == 1:
    while not (folder / "pid-0").exists():
        time.sleep(0.1)
    knocked = [knock(address) for address in addresses]
    time.sleep(2)  # the other worker would have ended by then
    other = int((folder / "pid-0").read_text())
    is_there = Path(f"/proc/{other}").exists()
    print("RESULT", json.dumps({"loss": loss, "is_there": is_there, "knocked": knocked}))

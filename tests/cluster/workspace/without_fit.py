"""A script of two workers that never calls `fit`; its argument says what happens besides."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np

what, index = sys.argv[1], json.loads(os.environ["TF_CONFIG"])["task"]["index"]
folder = Path(os.environ["TRAINER_RUN_DIR"])
keras.utils.set_random_seed(1)
inputs = np.random.default_rng(2).normal(size=(64, 6)).astype("float32")
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")

for _ in range(3):
    model.train_on_batch(inputs, inputs[:, :1])
if what == "lost" and index == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "chief-predicts" and index == 0:
    model.predict(inputs, verbose=0)
loss = model.evaluate(inputs, inputs[:, :1], verbose=0)
(folder / f"pid-{index}").write_text(str(os.getpid()))
if index == 1:
    while not (folder / "pid-0").exists():
        time.sleep(0.1)
    time.sleep(2)  # in which the other one would have ended
    other = int((folder / "pid-0").read_text())
    print("RESULT", json.dumps({"loss": loss, "is_there": Path(f"/proc/{other}").exists()}))

"""Compares the speed of a script's `fit`, of the trainer's, and of legacy Keras's.

They train mnist_cnn on random pixels in MNIST's shapes, with 64 examples per worker and step. Each
worker has one thread on its own processor. All workers are in one container, and its entrypoint
starts them. Two workers sum over the ring; with legacy Keras, over TensorFlow's collectives. The
cases take turns. The examples of all workers count, from the second epoch on.
"""

import json
import os
import statistics
import subprocess
import sys

PREDICTED = "fit at least 0.95 of the trainer; on two workers at least 1.6 times legacy fit"
ROUNDS = 3
EXAMPLES = 20_000
# Runs in the container, once for each worker of a case: prints the examples/s of each epoch.
WORKER = """
import json, os, sys, time
from contextlib import nullcontext

case, count, index = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
noise = np.random.default_rng(0)
inputs = noise.random((EXAMPLES, 28, 28, 1), np.float32)
labels = noise.integers(0, 10, EXAMPLES)
scope = nullcontext
if case == "trainer":
    from cluster_trainer import fit, start_strategy

    scope = start_strategy().scope
elif case == "legacy" and count > 1:
    scope = tf.distribute.MultiWorkerMirroredStrategy().scope
keras = tf.keras
layers = keras.layers
with scope():
    model = keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10),
    ])
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
batch = 64 * count
if case == "trainer":
    epochs = fit(model, ((inputs, labels), (inputs[:batch], labels[:batch])), optimizer=optimizer,
                 epochs=5, global_batch_size=batch)
    rates = [epoch.examples_per_second for epoch in epochs]
else:
    rates = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            rates.append(EXAMPLES / (time.perf_counter() - self.began))

    with scope():
        model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(inputs, labels, batch_size=batch, epochs=5, verbose=0, callbacks=[Clock()])
print(json.dumps(rates[1:]), flush=True)
ended = [f"/tmp/ended-{case}-{count}-{place}-{sys.argv[4]}" for place in range(count)]
open(ended[index], "w").close()
while not all(map(os.path.exists, ended)):
    time.sleep(0.05)
os._exit(0)
"""
LAUNCHER = """
import json, os, statistics, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

worker, rounds = sys.argv[1], int(sys.argv[2])
entrypoint = [sys.executable, "-I", "-m", "entrypoint"]
found = {}

def start(case, count, index, turn):
    settings = {"TRAINER_RUN_DIR": f"/tmp/runs-{case}-{count}-{turn}", "MAX_RESTARTS": "0"}
    if case == "legacy":
        settings["TF_USE_LEGACY_KERAS"] = "1"
    if count > 1:
        hosts = [f"127.0.0.1:{3000 + place}" for place in range(count)]
        settings |= {"WORKER_HOSTS": ",".join(hosts), "WORKER_INDEX": str(index)}
    command = [*entrypoint, sys.executable, "-c", worker, case, str(count), str(index), str(turn)]
    return subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: os.sched_setaffinity(0, {index}),
    )

for turn in range(rounds):
    for count in (1, 2):
        for case in ("trainer", "fit", "legacy"):
            workers = [start(case, count, index, turn) for index in range(count)]
            with ThreadPoolExecutor() as pool:  # a full pipe of one would stop all
                said = list(pool.map(subprocess.Popen.communicate, workers))
            if any(worker.returncode for worker in workers):
                sys.exit("".join(out + err for out, err in said))
            *_, rates = (line for line in said[0][0].splitlines() if line.startswith("["))
            found.setdefault(f"{case} {count}", []).append(statistics.median(json.loads(rates)))
print(json.dumps(found))
"""
NAMES = {"trainer": "the trainer's `fit`", "fit": "Keras's `fit`", "legacy": "legacy Keras's `fit`"}


def measure(image: str) -> dict[str, list[float]]:
    """Return the examples/s of each case, one number for each round."""
    worker = WORKER.replace("EXAMPLES", str(EXAMPLES))
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python", image]
    command += ["-c", LAUNCHER, worker, str(ROUNDS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(ended.stderr)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def main(image: str) -> None:
    """Measure, and print the table."""
    found = measure(image)
    print(f"predicted: {PREDICTED}\n")
    print("| case | workers | examples/s, median | lowest | highest | of the trainer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, rates in found.items():
        case, count = name.split()
        ratio = statistics.median(rates) / statistics.median(found[f"trainer {count}"])
        middle, low, high = statistics.median(rates), min(rates), max(rates)
        cells = [
            NAMES[case],
            count,
            f"{middle:,.0f}",
            f"{low:,.0f}",
            f"{high:,.0f}",
            f"{ratio:.2f}",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(os.environ.get("IMAGE", "cluster-trainer:cpu"))

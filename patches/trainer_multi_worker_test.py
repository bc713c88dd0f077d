"""Trains on two workers, and compares with one.

Written for Keras's own tests, as keras/src/backend/tensorflow/trainer_multi_worker_test.py; runs alone as well.
"""

import json
import multiprocessing
import os
import socket

import numpy as np
import pytest

import keras
from keras.src import backend
from keras.src import testing

SECONDS = 300  # of a busy machine; alone it takes 10


def train(steps_per_execution):
    """Return the numbers of `fit`, `evaluate` and `predict`, and the weights.

    And whether statistics are finite that one worker has no examples for.
    """
    import tensorflow as tf

    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf.distribute.get_strategy()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).integers(0, 255, (21, 4), dtype=np.uint8)
    y = (x[:, :1] > 127).astype("float32")
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Rescaling(1 / 255),
                keras.layers.Dense(4, "tanh"),
                keras.layers.Dense(1, "sigmoid"),
            ]
        )
        model.compile(
            keras.optimizers.SGD(0.1),
            "binary_crossentropy",
            metrics=["auc", "mae"],
            steps_per_execution=steps_per_execution,
        )
    history = model.fit(
        x[:20],
        y[:20],
        batch_size=4,
        epochs=2,
        validation_data=(x, y),
        verbose=0,
    )
    logs = [value for values in history.history.values() for value in values]
    logs += model.evaluate(x, y, batch_size=4, verbose=0)
    predictions = model.predict(x, batch_size=4, verbose=0)
    numbers = [np.ravel(n) for n in [logs, predictions, *model.get_weights()]]
    with strategy.scope():
        normalized = keras.Sequential([keras.layers.BatchNormalization()])
        normalized.compile("sgd", "mse")
    x = x.astype("float32")
    normalized.fit(x, x, batch_size=4, verbose=0)
    finite = [np.isfinite(w).all() for w in normalized.get_weights()]
    return np.concatenate(numbers), all(finite)


def work(index, addresses, steps_per_execution, results, ended):
    task = {"type": "worker", "index": index}
    cluster = {"worker": addresses}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    results.put(train(steps_per_execution))
    ended.wait()  # neither ends before the other


@pytest.mark.skipif(
    backend.backend() != "tensorflow", reason="tf.distribute is TensorFlow's"
)
class MultiWorkerTest(testing.TestCase):
    def train_on_two_workers(self, steps_per_execution):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [server.getsockname()[1] for server in sockets]
        for server in sockets:
            server.close()
        addresses = [f"127.0.0.1:{port}" for port in ports]
        context = multiprocessing.get_context("spawn")
        results, ended = context.Queue(), context.Event()
        workers = [
            context.Process(
                target=work,
                args=(index, addresses, steps_per_execution, results, ended),
                daemon=True,
            )
            for index in range(2)
        ]
        for worker in workers:
            worker.start()
        try:
            return [results.get(timeout=SECONDS) for _ in workers]
        finally:
            ended.set()
            for worker in workers:
                worker.join(SECONDS)
                worker.kill()

    def check(self, steps_per_execution):
        expected, _ = train(steps_per_execution=1)
        for found, finite in self.train_on_two_workers(steps_per_execution):
            self.assertAllClose(found, expected, atol=1e-5)
            self.assertTrue(finite)

    def test_two_workers_train_as_one(self):
        self.check(steps_per_execution=1)

    def test_several_steps_per_execution(self):
        self.check(steps_per_execution=2)

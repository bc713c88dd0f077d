"""Two workers that prepare only their own rows train to the same bits as two that prepare all."""

import json
import re
import signal

import pytest
from meeting_place import MeetingPlace

# A fit, and a loop over `share`. Its arguments:
# "whole": a `filter` after the `map` makes each worker prepare all rows.
# "dies": worker 1 is lost in the middle of the fit's second epoch.
# "fits": there is no loop.
SCRIPT = """
import json, os, signal, sys, time
import keras, numpy as np, tensorflow as tf

from cluster_trainer import share, this_worker
from cluster_trainer.fits import input_watch

input_watch.WINDOW_SECONDS = 0.1

TABLE = np.random.default_rng(0).random((120, 4)).astype("float32")
prepared = []

def read(row):
    time.sleep(0.01)
    prepared.append(int(row))
    return TABLE[row], TABLE[row, :1] ** 2

def prepare(row):
    x, y = tf.numpy_function(read, [row], (tf.float32, tf.float32), stateful=False)
    return tf.ensure_shape(x, [4]), tf.ensure_shape(y, [1])

def pipeline(first, count):
    rows = tf.data.Dataset.range(first, first + count).shuffle(count, seed=3)
    rows = rows.map(prepare, num_parallel_calls=2)
    if "whole" in sys.argv:
        rows = rows.filter(lambda *_: True)
    return rows.batch(16).prefetch(2)

class Dies(keras.callbacks.Callback):
    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        is_there = (self.epoch, batch) == (1, 4) and this_worker().rank == 1
        if is_there and "dies" in sys.argv and os.environ["RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)

keras.utils.set_random_seed(5)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(pipeline(0, 90), validation_data=pipeline(90, 30), epochs=3, verbose=0,
                    callbacks=[Dies()]).history

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)

data, optimizer = pipeline(0, 90), keras.optimizers.SGD(0.01)
for epoch in range(0 if "fits" in sys.argv else 2):
    for x, y in share(data, model):
        step(x, y)

weights = [one.tolist() for one in model.get_weights()]
print("ENDED", json.dumps([weights, history]))
print("PREPARED", len(prepared), flush=True)
"""
FIT, LOOP = 3 * (90 + 30), 2 * 90
"""The rows that a worker prepares if it prepares all."""
SAID = "every worker prepares all rows of the tf.data pipeline: a `map` comes before `filter`"
EX_TEMPFAIL = 75


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("script") / "script.py"
    file.write_text(SCRIPT)
    return str(file)


def told(place):
    """Return the results of each worker's last process, and the number of rows it prepared."""
    lines = [worker.log.read_text().splitlines() for worker in place.workers]
    words = [dict(line.split(" ", 1) for line in own if " " in line) for own in lines]
    return [json.loads(one["ENDED"]) for one in words], [int(one["PREPARED"]) for one in words]


def trained(folder, script, *how, **settings):
    with MeetingPlace(folder, 2, script, *how, **settings) as place:
        assert place.wait() == [0, 0], place.logs
        whole = [one.log.read_text().count(SAID) for one in place.workers]
        assert whole == ([1, 0] if "whole" in how else [0, 0]), place.logs
        return told(place)


@pytest.fixture(scope="module")
def of_all_rows(script, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("whole"), script, "whole")


def test_own_rows_are_half_of_all_and_give_the_same_bits(tmp_path, script, of_all_rows):
    (expected, other), prepared_of_all = of_all_rows
    found, prepared = trained(tmp_path, script)
    assert expected == other
    assert found == [expected, expected]
    assert prepared_of_all == [FIT + LOOP] * 2
    assert sum(prepared) == FIT + LOOP
    assert max(prepared) < 0.6 * (FIT + LOOP)


@pytest.mark.long
def test_a_fit_that_resumes_in_an_epoch_reads_on_at_the_same_row(tmp_path, script, of_all_rows):
    with MeetingPlace(tmp_path, 2, script, "dies", TRAINER_CHECKPOINT_STEPS="1") as place:
        for worker, code in zip(place.workers, (EX_TEMPFAIL, -signal.SIGKILL), strict=True):
            assert worker.process.wait(120) == code, place.logs
            worker.kill()
            worker.start()
        assert place.wait() == [0, 0], place.logs
        assert re.search(r"the data continue with batch [2-6] of pass 2", place.logs), place.logs
        assert told(place)[0] == of_all_rows[0]


@pytest.mark.long
@pytest.mark.parametrize("settings", [{"TRAINER_SYNC_EVERY": "4"}, {"TRAINER_LOGICAL_CPUS": "2"}])
def test_rounds_and_several_devices_get_the_same_bits(tmp_path, script, settings):
    settings = settings | {"TRAINER_FIRST_BATCH": "off"}
    whole, _ = trained(tmp_path / "whole", script, "fits", "whole", **settings)
    found, prepared = trained(tmp_path / "own", script, "fits", **settings)
    assert found == whole
    assert sum(prepared) == FIT

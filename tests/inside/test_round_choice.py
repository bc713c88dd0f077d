"""With TRAINER_SYNC_EVERY=auto, the first seconds of a fit decide how often workers average."""

import re

import pytest
from meeting_place import MeetingPlace

# Waits in each sum, like a slow network, and after each epoch, so that it can be killed.
SCRIPT = """
import hashlib, os, sys, time
import keras, numpy as np
from cluster_trainer.collectives.renewable import RenewableRing

SECONDS = float(os.environ["SUM_SECONDS"])
EPOCHS = int(os.environ.get("EPOCHS", "3"))


def slowly(method):
    def slow(self, values, **how):
        if "training" in how["what"]:
            time.sleep(SECONDS)
        return method(self, values, **how)

    return slow


for name in ("all_reduce", "begin_all_reduce"):
    setattr(RenewableRing, name, slowly(getattr(RenewableRing, name)))


class Calls(keras.callbacks.Callback):
    several_batches_a_call = True
    epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)
        time.sleep(float(os.environ.get("PAUSE", "0")))


keras.utils.set_random_seed(1)
noise = np.random.default_rng(0)
x, y = (noise.normal(size=(3200, size)).astype("float32") for size in (3, 1))
layers = keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)
model = keras.Sequential([keras.Input((3,)), *layers])
model.compile("adam", "mse")
calls = Calls()
if "ONCE" in os.environ:
    model.fit(((x[:8], y[:8]) for _ in range(40)), steps_per_epoch=40, verbose=0)
model.fit(x, y, batch_size=8, epochs=EPOCHS, callbacks=[calls], verbose=0)
state = [*model.weights, *model.optimizer.variables]
weights = b"".join(np.asarray(one).tobytes() for one in state)
print("WEIGHTS", hashlib.sha256(weights).hexdigest(), calls.epochs[-EPOCHS:], flush=True)
"""
SLOW, FAST = "0.02", "0"


def place_of(folder, every, seconds=SLOW, size=2, **settings):
    script = folder / "script.py"
    folder.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    settings = {"SUM_SECONDS": seconds, "TRAINER_SYNC_EVERY": every, **settings}
    return MeetingPlace(folder / "run", size, str(script), **settings)


def weights_of(place):
    """Return the hash of both workers' weights, and worker 0's log."""
    assert place.wait() == [0, 0], place.logs
    logs = [worker.log.read_text() for worker in place.workers]
    found = [re.findall(r"WEIGHTS (\w+)", log) for log in logs]
    assert found[0] == found[1] != [], place.logs
    return found[0], logs[0]


def chosen_in(log):
    return re.findall(r"TRAINER_SYNC_EVERY=auto: (\d+)", log)


def test_slow_sums_begin_the_fit_again_with_rounds_that_the_number_repeats(tmp_path):
    with place_of(tmp_path / "auto", "auto") as place:
        by_auto, log = weights_of(place)
        every = place.workers[1].status["sync_every"]
    (chosen,) = chosen_in(log)
    assert every == int(chosen) in {4, 8, 16, 32, 64}
    assert f"TRAINER_SYNC_EVERY={chosen} repeats this run" in log
    assert "resuming from step 0" in log
    assert "[0, 1, 2]" in log  # the callback has forgotten the epochs of the first attempt
    with place_of(tmp_path / "number", chosen) as place:
        by_number, _ = weights_of(place)
    assert by_auto == by_number


@pytest.mark.long
def test_cheap_sums_stay_in_each_step_without_a_second_beginning(tmp_path):
    more = {"EPOCHS": "400", "TRAINER_WIRE": "bfloat16", "TRAINER_THREADS": "1"}
    with place_of(tmp_path, "auto", FAST, **more) as place:
        place.when(lambda: "sync_every" in place.workers[1].status, "chosen")
        log = place.workers[0].log.read_text()
    (chosen,) = chosen_in(log)
    if chosen == "1":  # two workers of one machine: a step of this model takes less than a sum
        assert "training is exact" in log
    assert re.search(r"because sums of gradients took \d+% of", log)


@pytest.mark.long
def test_a_killed_worker_keeps_the_choice_and_the_bits(tmp_path):
    with place_of(tmp_path / "auto", "auto", PAUSE="0.5") as place:
        victim = place.workers[1]
        place.when(lambda: (victim.status.get("checkpoint_step") or 0) > 0, "a checkpoint")
        every = victim.status["sync_every"]
        victim.kill()
        victim.start()
        by_auto, log = weights_of(place)
        assert victim.status["sync_every"] == every
        assert len(chosen_in(log)) == 1, log
    with place_of(tmp_path / "number", str(every)) as place:
        by_number, _ = weights_of(place)
    assert by_auto == by_number


@pytest.mark.long
def test_a_new_process_resumes_with_the_choice_and_refuses_another_number(tmp_path):
    with place_of(tmp_path / "auto", "auto", PAUSE="0.5") as place:
        place.when(lambda: (place.workers[0].status.get("checkpoint_step") or 0) > 0, "saved")
        every = place.workers[0].status["sync_every"]
    with place_of(tmp_path / "auto", str(2 * every)) as place:
        assert place.wait() == [78, 78], place.logs
        assert "TRAINER_SYNC_EVERY" in place.logs
    with place_of(tmp_path / "auto", "auto") as place:
        by_auto, log = weights_of(place)
    assert f"TRAINER_SYNC_EVERY=auto: {every}, as chosen before" in log
    with place_of(tmp_path / "number", str(every)) as place:
        by_number, _ = weights_of(place)
    assert by_auto == by_number


@pytest.mark.long
def test_with_fewer_workers_and_one_that_is_back_all_keep_the_choice(tmp_path):
    more = {"size": 3, "MIN_WORKERS": "2", "PAUSE": "1", "EPOCHS": "12"}
    with place_of(tmp_path, "auto", **more) as place:
        victim = place.workers[2]
        place.when(lambda: (victim.status.get("checkpoint_step") or 0) > 0, "a checkpoint")
        every = victim.status["sync_every"]
        victim.kill()
        place.when(lambda: place.members == [0, 1], "a ring of two")
        victim.start(is_late=True)
        place.when(lambda: place.members == [0, 1, 2], "a ring of three")
        assert place.wait() == [0, 0, 0], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
        assert [one.status["sync_every"] for one in place.workers] == [every] * 3
    found = {*re.findall(r"WEIGHTS (\w+)", "".join(logs))}
    assert len(found) == 1, logs


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"TRAINER_CHECKPOINT_STEPS": "0"}, "without checkpoints"),
        ({"ONCE": "1"}, "with data that may differ when they are read again (a tf.data.Dataset"),
    ],
)
def test_a_fit_that_cannot_begin_again_is_refused(tmp_path, settings, why):
    with place_of(tmp_path, "auto", **settings) as place:
        assert place.wait() == [78, 78], place.logs
        assert why in place.logs


@pytest.mark.long
def test_a_fit_that_is_over_before_enough_was_measured_is_exact(tmp_path):
    with place_of(tmp_path / "auto", "auto", FAST, EPOCHS="1") as place:
        by_auto, log = weights_of(place)
    assert "1, because the first fit ended" in log
    with place_of(tmp_path / "number", "1", FAST, EPOCHS="1") as place:
        by_number, _ = weights_of(place)
    assert by_auto == by_number

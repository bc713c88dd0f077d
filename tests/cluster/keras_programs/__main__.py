"""Runs all programs on two workers. Before that, each worker runs them alone.

The first worker then uses no strategy, and the second uses MirroredStrategy on two devices. So one
cluster gives three results of each program, with one import of TensorFlow per worker.

LEFT_OUT lists the programs that do not run. With the ring, only the two workers run them together.
"""

import json
import os
import sys
import time
from pathlib import Path

import arrays
import chance
import feeds
import keras
import models
import numpy as np
import options
import tensorflow as tf
from tensorflow.python.data.ops.multi_device_iterator_ops import OwnedMultiDeviceIterator

cpu, *_ = tf.config.list_physical_devices("CPU")
parts = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, parts)


def keep_iterators():
    """Keep all iterators: destroying one may take ten seconds on a busy machine."""
    begin, kept = OwnedMultiDeviceIterator.__init__, []

    def begin_and_keep(iterator, *given, **named):
        kept.append(iterator)
        begin(iterator, *given, **named)

    OwnedMultiDeviceIterator.__init__ = begin_and_keep


def as_lists(value):
    """Return a program's outcome for JSON: each array as a flat list of its numbers."""
    if isinstance(value, dict):
        return {name: as_lists(part) for name, part in value.items()}
    if isinstance(value, list):
        return [number for part in value for number in np.ravel(part).tolist()]
    return np.ravel(value).tolist()


def programs():
    """Return all programs by name. The random programs are there twice."""
    once = arrays.PROGRAMS + options.PROGRAMS + feeds.PROGRAMS + models.PROGRAMS + chance.PROGRAMS
    again = {f"{program.__name__} again": program for program in chance.PROGRAMS}
    every = {program.__name__: program for program in once} | again
    left_out = os.environ.get("LEFT_OUT", "").split(",")
    return {name: program for name, program in every.items() if name not in left_out}


def run(where, strategy, folder, names=None):
    outcomes = {}
    every = programs()
    for name in names or every:
        began = time.monotonic()
        keras.utils.set_random_seed(3)
        outcomes[name] = as_lists(every[name](strategy))
        print(f"{where} {name} {time.monotonic() - began:.1f} s", flush=True)
    # In one move: the other worker ends both, once it sees the file.
    unfinished = folder / f"{where}.unfinished"
    unfinished.write_text(json.dumps(outcomes))
    unfinished.rename(folder / f"{where}.json")


def run_over_ring(task, folder):
    """Run the programs without a strategy. A ring refuses data that TensorFlow distributes."""
    names = [name for name in programs() if name != "shared_by_tensorflow"]
    run(f"worker-{task}", tf.distribute.get_strategy(), folder, names)


def run_all(task, folder):
    workers = tf.distribute.MultiWorkerMirroredStrategy()  # first, as TensorFlow requires
    if task == 0:
        run("alone", tf.distribute.get_strategy(), folder)
    else:
        # Otherwise both strategies would use the same group keys. TensorFlow's own tests do this.
        tf.distribute.MirroredStrategy._collective_key_base = 1000  # noqa: SLF001
        run("devices", tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), folder)
    run(f"worker-{task}", workers, folder)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    keep_iterators()
    over_ring = os.environ.get("TRAINER_COLLECTIVES") == "ring"
    (run_over_ring if over_ring else run_all)(
        json.loads(os.environ["TF_CONFIG"])["task"]["index"], folder
    )
    while len([*folder.glob("worker-*.json")]) < 2:  # the first to end would end the other
        time.sleep(0.1)
    os._exit(0)

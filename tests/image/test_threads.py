"""TensorFlow starts one thread for each processor that the container may use, also in scripts.

tests/unit/trainer/test_processors.py tests the variables that choose another number.
"""

import pytest

PERIOD = 100_000  # microseconds, the kernel's default
ONE_PROCESSOR = {"cpu_period": PERIOD, "cpu_quota": PERIOD}
COUNT = """
import json, os
import tensorflow as tf

def threads():
    files = [f"/proc/self/task/{task}/comm" for task in os.listdir("/proc/self/task")]
    return [open(file).read().startswith("tf_") for file in files]

CHOICE
before = threads()
tf.matmul(tf.ones([9, 9]), tf.ones([9, 9]))
inside_operations = threads().count(False) - before.count(False)
print(json.dumps(inside_operations))
"""
OWN = "tf.config.threading.set_intra_op_parallelism_threads(3)"


@pytest.mark.parametrize(("choice", "expected"), [("", 1), (OWN, 3)], ids=["limit", "script"])
def test_a_limit_of_processors_limits_what_nobody_has_chosen(run_python, choice, expected):
    program = COUNT.replace("CHOICE", choice)
    assert run_python(program, **ONE_PROCESSOR) == expected


def test_without_a_limit_tensorflow_finds_the_number_itself(run_python):
    program = COUNT.replace("CHOICE", "allowed = len(os.sched_getaffinity(0))")
    given = "[allowed, os.environ.get('TF_NUM_INTRAOP_THREADS'), inside_operations]"
    allowed, told, inside = run_python(program + f"print(json.dumps({given}))")
    assert (told, inside) == (None, allowed)

"""Read event files back with TensorBoard's own reader."""

import numpy as np
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util.tensor_util import make_ndarray


def read(folder):
    """Return {tag: [(step, value)]} of a folder, as TensorBoard's server reads it.

    The older reader, which programs use, must find the same numbers.
    """
    found = plugin_event_accumulator.EventAccumulator(str(folder), {"tensors": 0})
    found.Reload()
    shown = {
        tag: [(one.step, make_ndarray(one.tensor_proto)) for one in found.Tensors(tag)]
        for tag in found.Tags()["tensors"]
    }
    older = event_accumulator.EventAccumulator(str(folder), {"scalars": 0})
    older.Reload()
    for tag in older.Tags()["scalars"]:
        numbers = [(one.step, one.value) for one in older.Scalars(tag)]
        np.testing.assert_array_equal(numbers, shown[tag])
    return shown


def steps(points):
    return [step for step, _ in points]

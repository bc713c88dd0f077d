import numpy as np
import pytest

from cluster_trainer.results.weights import digest

VALUES = [np.zeros([2, 3], np.float32), np.ones([4], np.float32)]


def test_equal_weights_have_equal_digests():
    assert digest(VALUES) == digest([value.copy(order="F") for value in VALUES])


@pytest.mark.parametrize(
    "other",
    [
        [VALUES[1], VALUES[0]],
        [VALUES[0].reshape(3, 2), VALUES[1]],
        [VALUES[0].astype(np.float64), VALUES[1]],
        [np.nextafter(VALUES[0], np.float32(1)), VALUES[1]],
        VALUES[:1],
    ],
)
def test_any_difference_shows(other):
    assert digest(other) != digest(VALUES)

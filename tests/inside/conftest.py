"""Four logical CPU devices stand in for four GPUs: the same code path under MirroredStrategy."""

import os
import sys
from functools import cache

import pytest
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)


@cache
def strategy_of(replicas):
    """No strategy for one replica, MirroredStrategy on as many CPU devices for more."""
    if replicas == 1:
        return tf.distribute.get_strategy()
    # Strategies of several sizes in one process would number their groups alike; TensorFlow's own
    # tests set them apart in this way.
    tf.distribute.MirroredStrategy._collective_key_base = 1000 * replicas  # noqa: SLF001
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])


@pytest.fixture(params=[1, 2, 4])
def strategy(request):
    return strategy_of(request.param)


STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[STATUS] = exitstatus


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """End as the trainer does: each distributed iterator's destructor may wait for ten seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(config.stash.get(STATUS, 1))

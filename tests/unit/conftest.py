"""What all tests that need no Docker share."""

import gc

from hypothesis import HealthCheck, settings

# No deadlines, and no word of slow examples: both fail on a machine that others use too.
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", **UNHURRIED, max_examples=12)
settings.register_profile("thorough", **UNHURRIED, max_examples=500)  # `make chaos`
settings.load_profile("quick")

# Thousands of tests are collected, and stay: looking through them for garbage took a quarter of the
# time.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()

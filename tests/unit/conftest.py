"""Settings for all unit tests."""

import gc

from hypothesis import HealthCheck, settings

# On a busy machine, deadlines and the check for slow examples fail without a fault.
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", **UNHURRIED, max_examples=12)
settings.register_profile("thorough", **UNHURRIED, max_examples=500)  # `make chaos`
settings.load_profile("quick")

# Thousands of collected tests live to the end. Scanning them for garbage took a quarter of the
# time.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()

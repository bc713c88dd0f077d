"""What all tests that need no Docker share."""

from hypothesis import settings

# No deadlines: time limits of single examples fail on a machine that others use too.
settings.register_profile("quick", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)  # `make chaos`
settings.load_profile("quick")

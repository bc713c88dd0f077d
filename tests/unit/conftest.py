"""What all tests that need no Docker share."""

from hypothesis import settings

# Time limits of single examples fail on a machine that others use too.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

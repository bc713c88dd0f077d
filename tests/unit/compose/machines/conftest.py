"""Shared fixtures."""

from datetime import datetime

import pytest


@pytest.fixture
def now():
    return datetime(2026, 11, 28)  # noqa: DTZ001 -- runs are named by local time

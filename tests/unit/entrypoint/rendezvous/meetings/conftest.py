"""Coroutine tests run in a loop with a simulated clock, over a network in memory."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator

import pytest

from harness.gates import GatesInMemory, World
from harness.simulation import simulate

LONGEST_SECONDS = 20_000.0
"""On the simulated clock."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 -- as pytest's own hook does
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    simulate(asyncio.wait_for(pyfuncitem.obj(**arguments), LONGEST_SECONDS))
    return True


@pytest.fixture
def cluster() -> Iterator[Callable[..., GatesInMemory]]:
    """Return a function that makes a cluster in memory."""
    world = World()
    yield functools.partial(GatesInMemory, world)
    world.close()

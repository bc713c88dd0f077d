"""A pytest plugin that records which test runs, for traced_lines.py, and for how long."""

import contextlib
import os
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import pytest
import traced_lines  # type: ignore[import-not-found]  # it is there beside this file


def _note(name: str) -> None:
    """Attribute the lines of this process and its children to a test, or to a file."""
    if traced_lines.tracer is None:
        return
    traced_lines.tracer.note_test(name)
    notes = traced_lines.tracer.folder / f"test-{os.getpid()}"
    new = notes.with_suffix(".new")
    with contextlib.suppress(OSError):  # some tests drop their privileges for a while
        new.write_text(name)
        new.replace(notes)


@cache
def _ends() -> TextIO:
    """Open the file of results once, before a test drops its privileges."""
    path: Path = traced_lines.tracer.folder / f"ends-{os.getpid()}"
    return path.open("a", buffering=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Attribute the running code to this test."""
    _note(item.nodeid)
    try:
        return (yield)
    finally:
        _note("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Attribute the code of a shared fixture to all tests of the file."""
    if fixturedef.scope == "function":
        return (yield)
    item = request._pyfuncitem.nodeid  # noqa: SLF001 the first test that needs it
    _note(item.partition("::")[0])
    try:
        return (yield)
    finally:
        _note(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record the duration and the result of each part of a test."""
    report = yield
    if traced_lines.tracer is not None:
        _ends().write(f"{report.duration:.3f} {report.outcome} {item.nodeid}\n")
    return report

from __future__ import annotations

import pytest

from entrypoint.export.export import export


@pytest.fixture
def exported(capfd):
    """Return a function that runs `export` and returns its output."""

    def run(*arguments: str) -> str:
        code = export(arguments)
        out, err = capfd.readouterr()
        assert code == 0, err
        return out

    return run


@pytest.fixture
def refused(capfd):
    """Return a function that runs `export` and returns the message of its refusal."""

    def run(*arguments: str) -> str:
        code = export(arguments)
        out, err = capfd.readouterr()
        assert (code, out) == (78, "")
        return err

    return run

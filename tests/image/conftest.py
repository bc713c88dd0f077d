"""Fixtures that the tests of the image share."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.ended import Ended


@pytest.fixture
def run_bash(run_to_end: Callable[..., Ended]) -> Callable[..., str]:
    """Run a script in the image and return what it prints.

    The script must reach its end. Otherwise a script that does not run would seem to find nothing.
    """

    def run(script: str, **options: object) -> str:
        ended = run_to_end("bash", "-c", f"{script}\necho reached the end", **options)
        out, reached, rest = ended.out.rpartition("reached the end\n")
        assert (ended.code, bool(reached), rest) == (0, True, ""), ended
        return out

    return run


@pytest.fixture
def run_python(run_to_end: Callable[..., Ended]) -> Callable[..., Any]:
    """Run a Python program in the image and return the JSON value on its last line."""

    def run(program: str, **options: object) -> Any:
        ended = run_to_end("python", "-c", program, **options)
        assert ended.code == 0, ended.err
        return json.loads(ended.out.splitlines()[-1])

    return run

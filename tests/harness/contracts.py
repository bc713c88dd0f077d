"""Helpers of the tests of all contracts: ask a source, and read back its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.cluster.spec import Resolution
from entrypoint.errors import ConfigurationError, Problem, render
from entrypoint.settings.environ import Environ, Value
from entrypoint.sources import tf_config

Find = Callable[[Environ, int], Resolution | None]


def view(root: object = "/", **texts: str) -> Environ:
    """Return an environment with these variables and no files."""
    values = {name: Value(text, "environment") for name, text in texts.items()}
    return Environ(values, root=Path(str(root)))


def refusal(find: Find, environ: Environ) -> list[Problem]:
    """Return the problems for which the source refuses the environment."""
    with pytest.raises(ConfigurationError) as caught:
        find(environ, 2222)
    return list(caught.value.problems)


def read_back(found: Resolution) -> Resolution:
    """Resolve a resolution's TF_CONFIG again, by TensorFlow's contract."""
    again = tf_config.find(view(TF_CONFIG=found.tf_config_text()), 1)
    assert again is not None
    return again


def check_any(find: Find, environ: Environ) -> Resolution | None:
    """Ask the source. It must find nothing, a cluster that TF_CONFIG can express, or problems."""
    try:
        found = find(environ, 2222)
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017 -- an answer and an error are both right
        render(error.problems).encode()
        return None
    if found:
        again = read_back(found)
        assert (again.spec, again.task) == (found.spec, found.task)
    return found

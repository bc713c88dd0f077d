"""What the tests of all contracts do: ask a source, and read back what it found out."""

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
    """Return an environment without any file."""
    values = {name: Value(text, "environment") for name, text in texts.items()}
    return Environ(values, root=Path(str(root)))


def refusal(find: Find, environ: Environ) -> list[Problem]:
    """Return why the source refuses the environment."""
    with pytest.raises(ConfigurationError) as caught:
        find(environ, 2222)
    return list(caught.value.problems)


def read_back(found: Resolution) -> Resolution:
    """Return what TensorFlow's contract makes of the TF_CONFIG that was found."""
    again = tf_config.find(view(TF_CONFIG=found.tf_config_text()), 1)
    assert again is not None
    return again


def check_any(find: Find, environ: Environ) -> Resolution | None:
    """Ask the source; it must answer with what survives TF_CONFIG, nothing, or problems."""
    try:
        found = find(environ, 2222)
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017 -- either end is right
        render(error.problems).encode()
        return None
    if found:
        again = read_back(found)
        assert (again.spec, again.task) == (found.spec, found.task)
    return found

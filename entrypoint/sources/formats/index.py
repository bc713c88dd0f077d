"""Which entry of a host list this worker is, as the variables that count workers say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from entrypoint.errors import ConfigurationError, Problem
from entrypoint.settings.environ import Environ, whole_number


@dataclass(frozen=True)
class IndexVariable:
    """A variable that counts the workers of a list."""

    name: str
    first: int
    """The number of the list's first entry."""

    def read(self, environ: Environ, list_name: str, count: int) -> int:
        """Return the index, from 0; `count` is the list's length, 0 where that is not known.

        Raises ConfigurationError if it is not in the list.
        """
        if count == 0:
            return whole_number(environ, self.name, self.first, None) - self.first
        workers = "1 worker" if count == 1 else f"{count} workers"
        why = f", because {list_name} names {workers}"
        last = self.first + count - 1
        return whole_number(environ, self.name, self.first, last, why) - self.first


def find_index(
    environ: Environ, variables: Iterable[IndexVariable], list_name: str, count: int
) -> int | None:
    """Return the index that is given, None if none is.

    Raises ConfigurationError for one that is not in the list, and for two that disagree.
    """
    indices: dict[str, int] = {}
    problems: list[Problem] = []
    for variable in variables:
        if variable.name in environ.values:
            try:
                indices[variable.name] = variable.read(environ, list_name, count)
            except ConfigurationError as error:
                problems += error.problems
    if len(set(indices.values())) > 1:
        problems.append(_contradiction(environ, indices))
    if problems:
        raise ConfigurationError(problems)
    return next(iter(indices.values()), None)


def _contradiction(environ: Environ, indices: dict[str, int]) -> Problem:
    meant = [f"{environ.get(name)} (entry {index})" for name, index in indices.items()]
    advice = "With CLUSTER_SOURCE=worker_hosts, WORKER_INDEX wins."
    return Problem(" and ".join(indices), "; ".join(meant), "the same entry of the list", advice)

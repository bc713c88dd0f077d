"""The project's own contract: WORKER_HOSTS, WORKER_INDEX."""

from __future__ import annotations

from entrypoint.addresses import ACCEPTED, Address, AddressError, parse_address
from entrypoint.cluster import WORKER, ClusterSpec, Resolution, Task, spec_problems
from entrypoint.environ import Environ, whole_number
from entrypoint.errors import ConfigurationError, Problem
from entrypoint.variables import HOST_LIST


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of WORKER_HOSTS; without WORKER_INDEX its task is not known yet."""
    text = environ.get("WORKER_HOSTS")
    if text is None:
        return None
    entries = split_entries(text)
    addresses, problems = _addresses(environ.label("WORKER_HOSTS"), entries, default_port)
    spec = ClusterSpec.of_workers(addresses)
    if not problems:
        problems += spec_problems(environ.label("WORKER_HOSTS"), spec)
    try:
        index = find_index(environ, len(entries))
    except ConfigurationError as error:
        problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return Resolution("WORKER_HOSTS", spec, None if index is None else Task(WORKER, index))


def split_entries(text: str) -> list[str]:
    """Return the entries of a list; between two commas that may be an empty one."""
    if not text.strip():
        return []
    return [entry for piece in text.split(",") for entry in piece.split() or [""]]


def _addresses(name: str, entries: list[str], port: int) -> tuple[list[Address], list[Problem]]:
    """Return the entries as addresses, and a problem for each that is none."""
    if not entries:
        advice = "It is set, but empty; for one worker alone leave it out."
        return [], [Problem(name, "", HOST_LIST, advice)]
    addresses, problems = [], []
    for position, entry in enumerate(entries):
        try:
            addresses.append(parse_address(entry, port))
        except AddressError as error:
            problems.append(Problem(f"{name}, entry {position}", entry, ACCEPTED, str(error)))
    return addresses, problems


def find_index(environ: Environ, count: int) -> int | None:
    """Return WORKER_INDEX, None if it is not given; raise ConfigurationError.

    `count` is the number of workers, 0 where that is not known.
    """
    if "WORKER_INDEX" not in environ.values:
        return None
    if count == 0:
        return whole_number(environ, "WORKER_INDEX", 0, None)
    workers = "1 worker" if count == 1 else f"{count} workers"
    why = f", because WORKER_HOSTS names {workers}"
    return whole_number(environ, "WORKER_INDEX", 0, count - 1, why)

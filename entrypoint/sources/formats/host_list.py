"""A plain list of hosts: worker i is its entry i."""

from __future__ import annotations

from collections.abc import Iterable

from entrypoint.cluster.addresses import ACCEPTED, Address, AddressError, parse_address
from entrypoint.cluster.spec import ClusterSpec, spec_problems
from entrypoint.errors import ConfigurationError, Problem


def read_workers(name: str, entries: Iterable[str], default_port: int) -> ClusterSpec:
    """Return the cluster of a list; `name` is where it was given.

    Raises ConfigurationError with every problem.
    """
    spec = ClusterSpec.of_workers(read_addresses(name, entries, default_port))
    if problems := spec_problems(name, spec):
        raise ConfigurationError(problems)
    return spec


def read_addresses(name: str, entries: Iterable[str], default_port: int) -> list[Address]:
    """Return the entries as addresses; raise ConfigurationError with each that is none."""
    addresses: list[Address] = []
    problems: list[Problem] = []
    for position, entry in enumerate(entries):
        try:
            addresses.append(parse_address(entry, default_port))
        except AddressError as error:
            problems.append(Problem(f"{name}, entry {position}", entry, ACCEPTED, str(error)))
    if problems:
        raise ConfigurationError(problems)
    return addresses

"""Lists of hosts: a plain list (worker i is entry i), or JSON, where keys may be indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from entrypoint.cluster.addresses import ACCEPTED, Address, AddressError, parse_address
from entrypoint.cluster.spec import ClusterSpec, spec_problems
from entrypoint.errors import ConfigurationError, Problem
from entrypoint.settings.forms import parse_whole_number


def read_workers(name: str, entries: Iterable[str], default_port: int) -> ClusterSpec:
    """Return the cluster of a list; `name` is the variable's name in messages.

    Raises ConfigurationError with every problem.
    """
    spec = ClusterSpec.of_workers(read_addresses(name, entries, default_port))
    if problems := spec_problems(name, spec):
        raise ConfigurationError(problems)
    return spec


def read_addresses(name: str, entries: Iterable[str], default_port: int) -> list[Address]:
    """Return the entries as addresses. Raises ConfigurationError with each invalid entry."""
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


Complain = Callable[..., None]
"""Takes the place, the received value, the accepted values and advice."""

_WRONG = Address("wrong", 0)
"""Stands for an entry with a problem, so that its index is still known."""


def read_entries(
    place: str,
    entries: dict[str, object] | list[object],
    default_port: int,
    complain: Complain,
) -> dict[int, Address]:
    """Return the addresses by index; problems go to `complain`."""
    found: dict[int, Address] = {}
    pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
    for key, entry in pairs:
        index = read_index(key)
        if index is None or index in found:
            complain(f"{place}[{key}]", str(key), "each index once, a whole number from 0")
        else:
            found[index] = _address(f"{place}[{key}]", entry, default_port, complain)
    return found


def _address(place: str, entry: object, default_port: int, complain: Complain) -> Address:
    if not isinstance(entry, str):
        complain(place, entry, ACCEPTED)
        return _WRONG
    try:
        return parse_address(entry, default_port)
    except AddressError as error:
        complain(place, entry, ACCEPTED, str(error))
        return _WRONG


def read_index(value: object) -> int | None:
    """Return an index given as a number or as text, else None."""
    if not isinstance(value, int | str):
        return None
    index = parse_whole_number(str(value))
    return None if index is None or index < 0 else index

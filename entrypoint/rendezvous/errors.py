"""How the gate ends when it does not open."""

from __future__ import annotations

from entrypoint.errors import EXIT_PEER_LOST, ConfigurationError


class PeersMissingError(Exception):
    """Not all workers came in time; the message says who is missing and why."""

    exit_code = EXIT_PEER_LOST


class ContradictionError(ConfigurationError):
    """The workers do not agree; every worker that is connected raises the same problems."""


class PortTakenError(ConfigurationError):
    """This worker's port cannot be opened."""

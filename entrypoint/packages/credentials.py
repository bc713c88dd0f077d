"""Passwords and signatures in addresses, which have no place in a log."""

from __future__ import annotations

import re

HIDDEN = "****"
"""As pip writes it."""
_USER = re.compile(r"(//|:)(?!/)\S*@")
"""What stands before the host; a password may hold anything but a space, where pip quotes an
address that it cannot read."""
_QUERY = re.compile(r"(/\S*\?)\S+")
"""Storage services sign an address in what follows the question mark."""


def without_credentials(text: str) -> str:
    """Return the text with the user, the password and the query of each address hidden."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))

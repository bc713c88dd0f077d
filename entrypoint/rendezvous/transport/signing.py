"""The lines of a connection: numbered against replays, and signed if there is a token."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets

from entrypoint.rendezvous.transport.messages import MessageError
from entrypoint.rendezvous.transport.reasons import (
    PeerError,
    WrongTokenError,
    not_a_worker,
    other_version,
)

VERSION = 1
LONGEST_GREETING = 100
UNSIGNED = b"-"
REFUSAL = b"refused\n"
"""A listener's answer to a wrong signature. It is constant and unsigned, so it does not help to
guess a token. The dialer also takes it for a wrong signature."""
_NONCE = re.compile("[0-9a-f]{32}")


GREETING = b"cluster-trainer-gate "
"""The beginning of each side's first line."""


def new_nonce() -> str:
    """Return a random text that distinguishes a connection from all others."""
    return secrets.token_hex(16)


def greeting(nonce: str) -> bytes:
    """Return the first line of each side."""
    return GREETING + f"{VERSION} {nonce}\n".encode()


def may_be_greeting(received: bytes | bytearray) -> bool:
    """Whether a greeting can begin with these bytes, and is not too long."""
    begins = received.startswith(GREETING) or GREETING.startswith(received)
    return begins and (len(received) < LONGEST_GREETING or b"\n" in received)


def read_greeting(line: bytes) -> str:
    """Return the other side's nonce. Raises PeerError, which describes another program."""
    if not line.startswith(GREETING):
        raise PeerError(not_a_worker(line))
    version, _, nonce = line.removeprefix(GREETING).decode("ascii", "replace").partition(" ")
    if version != str(VERSION):
        raise PeerError(other_version(version[:10], VERSION))
    if not _NONCE.fullmatch(nonce):
        raise PeerError(not_a_worker(line))
    return nonce


class Signer:
    """Both directions of one connection: `<signature> <number> <payload>`, ended by a newline.

    The signature is an HMAC-SHA256 (RFC 2104) over both nonces, the direction, the number and the
    payload. So a recorded line is invalid on another connection, and a line cannot be sent back to
    its sender.
    """

    def __init__(
        self,
        token: str | None,
        *,
        dialer: str,
        listener: str,
        is_dialer: bool,
    ) -> None:
        self._key = None if token is None else os.fsencode(token)
        names = (b"dialer", b"listener") if is_dialer else (b"listener", b"dialer")
        context = f"{VERSION} {dialer} {listener} ".encode()
        self._out, self._in = (context + name for name in names)
        self._sent = self._received = 0

    def sign(self, payload: bytes) -> bytes:
        """Return the next line to send."""
        numbered = b"%d %s" % (self._sent, payload)
        self._sent += 1
        return b"%s %s\n" % (self._sign(self._out, numbered), numbered)

    def verify(self, line: bytes) -> bytes:
        """Return the payload of the next received line. Raises WrongTokenError, MessageError."""
        signature, _, numbered = line.partition(b" ")
        if not hmac.compare_digest(signature, self._sign(self._in, numbered)):
            raise WrongTokenError
        number, _, payload = numbered.partition(b" ")
        if number != b"%d" % self._received:
            raise MessageError
        self._received += 1
        return payload

    def _sign(self, context: bytes, numbered: bytes) -> bytes:
        if self._key is None:
            return UNSIGNED
        return hmac.new(self._key, context + b" " + numbered, hashlib.sha256).hexdigest().encode()

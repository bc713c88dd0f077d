"""What two workers say to each other: one JSON object a message, read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field

from entrypoint.errors import MOST_SHOWN, Problem, shortened
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError
from entrypoint.strict_json import StrictJSONError, parse_object

LONGEST_LINE = 65_536
"""Bytes of a message with everything around it."""

LONGEST_TEXT = 4096
"""Characters of one text in a message."""

LONGEST_PART = 500
"""Characters of each of the four parts of a problem."""

CHECK_IN, PROBE = "check-in", "probe"
"""The first message of who dials: a member that wants to stay, or a look at who is there."""
CARD = "card"
"""The answer: who the listener is."""
HOSTS = "hosts"
"""A part of the host list, asked for by position where the lists' digests differ."""
PING, READY, RELEASE, GO = "ping", "ready", "release", "go"
"""Alive? Alive and nothing against it? Close your port! All ports are closed. A member answers each
of the first three with the same kind and number."""
STATUS, CONTRADICTION = "status", "contradiction"
"""Who is missing; how the gate ends."""


class MessageError(PeerError):
    """What was received is no message."""

    def __init__(self) -> None:
        """Say the one reason."""
        super().__init__(NO_MESSAGE)


@dataclass(frozen=True)
class Message:
    """One message; its fields are what a stranger may have written until they are read below."""

    kind: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def text(self, name: str, longest: int = LONGEST_TEXT) -> str:
        """Return a text of at most so many characters; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, str) or len(value) > longest:
            raise MessageError
        return value

    def number(self, name: str) -> int:
        """Return a whole number from 0; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MessageError
        return value

    def flag(self, name: str) -> bool:
        """Return true or false; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise MessageError
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise MessageError
        return tuple(value)

    def mapping(self, name: str) -> dict[str, str]:
        """Return names and their texts; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, dict) or not all(isinstance(t, str) for t in value.values()):
            raise MessageError
        return value


def encode(message: Message) -> bytes:
    """Return the message as one line of JSON in ASCII, without its end."""
    return json.dumps({"kind": message.kind, **message.fields}, separators=(",", ":")).encode()


def decode(payload: bytes) -> Message:
    """Return the message; raise MessageError for anything else."""
    try:
        fields = parse_object(payload.decode())
    except (UnicodeDecodeError, StrictJSONError):
        raise MessageError from None
    kind = fields.pop("kind", None)
    if not isinstance(kind, str):
        raise MessageError
    return Message(kind, fields)


def contradiction(problems: Iterable[Problem]) -> Message:
    """Return the message that ends the gate, with as many of the problems as it can hold."""
    rows = [
        [shortened(part or "", LONGEST_PART) for part in astuple(problem)] for problem in problems
    ][:MOST_SHOWN]
    while len(encode(message := Message(CONTRADICTION, {"problems": rows}))) > LONGEST_LINE // 2:
        rows.pop()
    return message


def read_contradiction(message: Message) -> tuple[Problem, ...]:
    """Return the problems; raise MessageError."""
    rows = message.fields.get("problems")
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_SHOWN:
        raise MessageError
    return tuple(_problem(row) for row in rows)


def _problem(row: object) -> Problem:
    """Return one of them."""
    if not isinstance(row, list) or [type(text) for text in row] != [str] * 4:
        raise MessageError
    return Problem(*(shortened(text, LONGEST_PART) for text in row))

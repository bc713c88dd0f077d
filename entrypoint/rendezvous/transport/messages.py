"""What two workers say to each other: one JSON object a message, read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field

from entrypoint.errors import MOST_SHOWN, Problem, escaped, shortened
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError
from entrypoint.strict_json import StrictJSONError, parse_object

LONGEST_LINE = 65_536
"""Bytes of a message with everything around it."""

LONGEST_TEXT = 4096
"""Characters of one text in a message. All are printable, so that none grows by being escaped."""

LONGEST_PART = 300
"""Characters of each of the four parts of a problem, after escaping."""

LONGEST_PROBLEMS = 16_384
"""Bytes of all problems in a message, so that the reason why the gate ends stays readable."""

LARGEST_NUMBER = 10**9
"""Of an index, a position or a question."""

CHECK_IN, PROBE = "check-in", "probe"
"""The first message of who dials: a member that wants to stay, or a look at who is there."""
CARD = "card"
"""The answer: who the listener is."""
HOSTS = "hosts"
"""A part of the host list, asked for by position where the lists' digests differ."""
PING, READY, RELEASE, GO = "ping", "ready", "release", "go"
"""Alive? Alive and nothing against it? Close your port! All have: go. A member answers each
of the first three, and LINK, with the same kind and number."""
AHEAD = "ahead"
"""Close your port and go ahead: the others train already, and meet you when your command asks."""
STATUS, CONTRADICTION = "status", "contradiction"
"""Who is missing; how the gate ends."""
WAIT = "wait"
"""All are here, and my own command starts: check in again, I will ask, too."""
LINK, AGAIN = "link", "again"
"""Connect with your neighbours, and say what is missing; a link is missing: go on waiting."""
JOIN, REFUSE = "join", "refuse"
"""To the right neighbour: I am your left one; its answer is a card, or that it is not so."""
HELLOS = (CHECK_IN, PROBE, JOIN)
"""The first message of who dials."""

KINDS = (
    *(CHECK_IN, PROBE, CARD, HOSTS, PING, READY, RELEASE, GO, AHEAD, STATUS, CONTRADICTION),
    *(WAIT, LINK, AGAIN, JOIN, REFUSE),
)


class MessageError(PeerError):
    """What was received is no message."""

    def __init__(self) -> None:
        super().__init__(NO_MESSAGE)


@dataclass(frozen=True)
class Message:
    """One message; its fields are what a stranger may have written until they are read below."""

    kind: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def text(self, name: str, longest: int = LONGEST_TEXT) -> str:
        """Return a text of at most so many characters; raise MessageError."""
        return _text(self.fields.get(name), longest)

    def number(self, name: str) -> int:
        """Return a whole number from 0; raise MessageError."""
        return _number(self.fields.get(name))

    def flag(self, name: str) -> bool:
        """Return true or false; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise MessageError
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; raise MessageError."""
        return tuple(_text(text, LONGEST_TEXT) for text in self._list(name))

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0; raise MessageError."""
        return tuple(map(_number, self._list(name)))

    def _list(self, name: str) -> list[object]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise MessageError
        return value

    def mapping(self, name: str, longest: int = LONGEST_TEXT) -> dict[str, str]:
        """Return names and their texts, of at most so many characters; raise MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, dict):
            raise MessageError
        return {_text(key, longest): _text(text, longest) for key, text in value.items()}


def _number(value: object) -> int:
    """Return a whole number from 0; raise MessageError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MessageError
    if not 0 <= value <= LARGEST_NUMBER:
        raise MessageError
    return value


def _text(value: object, longest: int) -> str:
    """Return a text that a line can show as it is; raise MessageError."""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
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
    if kind not in KINDS:
        raise MessageError
    return Message(kind, fields)


def fitting(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems as a message holds them: printable, bounded, as many as there is room."""
    fitted: list[Problem] = []
    room = LONGEST_PROBLEMS
    for problem in problems:
        parts = [shortened(escaped(part or ""), LONGEST_PART) for part in astuple(problem)]
        room -= len(json.dumps(parts))
        if room < 0 or len(fitted) == MOST_SHOWN:
            break
        fitted.append(Problem(*parts))
    return tuple(fitted)


def contradiction(problems: Iterable[Problem]) -> Message:
    """Return the message that ends the gate."""
    rows = [list(astuple(problem)) for problem in fitting(problems)]
    return Message(CONTRADICTION, {"problems": rows})


def read_contradiction(message: Message) -> tuple[Problem, ...]:
    """Return the problems; raise MessageError."""
    rows = message.fields.get("problems")
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_SHOWN:
        raise MessageError
    return fitting(_problem(row) for row in rows)


def _problem(row: object) -> Problem:
    if not isinstance(row, list) or [type(text) for text in row] != [str] * 4:
        raise MessageError
    return Problem(*row)

"""The messages between two workers: one JSON object each. Nothing in them is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field

from entrypoint.errors import MOST_SHOWN, Problem, escaped, shortened
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError
from entrypoint.strict_json import StrictJSONError, parse_object

LONGEST_LINE = 65_536
"""The largest number of bytes of a message with its signature."""

LONGEST_TEXT = 4096
"""The number of characters of one text in a message. All are printable, so escaping adds none."""

LONGEST_PART = 300
"""The number of characters of each of the four parts of a problem, after escaping."""

LONGEST_PROBLEMS = 16_384
"""The number of bytes of all problems in a message, so that it stays below LONGEST_LINE."""

LARGEST_NUMBER = 10**9
"""The largest index, position, generation or number of a question."""

CHECK_IN, PROBE = "check-in", "probe"
"""The dialer's first message. CHECK_IN: a member that stays. PROBE: a look at the worker there."""
CARD = "card"
"""The answer: the listener's card."""
HOSTS = "hosts"
"""A part of the host list, requested by position if the lists' digests differ."""
PING, READY, RELEASE, GO = "ping", "ready", "release", "go"
"""PING: are you alive? READY: are you alive, without a contradiction? RELEASE: close your port.
GO: all have closed theirs. A member answers the first three, and LINK, with the same kind and
number."""
AHEAD = "ahead"
"""Close your port and go ahead: the others train already, and meet you when your command asks."""
STATUS, CONTRADICTION = "status", "contradiction"
"""STATUS: the missing workers. CONTRADICTION: the problems that end the gate."""
WAIT = "wait"
"""All are here, but my own command is starting: check in again, I will also ask."""
LINK, AGAIN = "link", "again"
"""LINK: connect with your neighbours, and report missing ones. AGAIN: a link is missing, so keep
waiting."""
JOIN, REFUSE = "join", "refuse"
"""JOIN, to the right neighbour: I am your left neighbour. The answer is a card, or REFUSE."""
HELLOS = (CHECK_IN, PROBE, JOIN)
"""The dialer's first messages."""

KINDS = (
    *(CHECK_IN, PROBE, CARD, HOSTS, PING, READY, RELEASE, GO, AHEAD, STATUS, CONTRADICTION),
    *(WAIT, LINK, AGAIN, JOIN, REFUSE),
)


class MessageError(PeerError):
    """The received bytes are not a message."""

    def __init__(self) -> None:
        super().__init__(NO_MESSAGE)


@dataclass(frozen=True)
class Message:
    """One message. Its fields are untrusted until the methods below read them."""

    kind: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def text(self, name: str, longest: int = LONGEST_TEXT) -> str:
        """Return a text of at most `longest` characters. Raises MessageError."""
        return _text(self.fields.get(name), longest)

    def number(self, name: str) -> int:
        """Return a whole number from 0. Raises MessageError."""
        return _number(self.fields.get(name))

    def flag(self, name: str) -> bool:
        """Return true or false. Raises MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise MessageError
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts. Raises MessageError."""
        return tuple(_text(text, LONGEST_TEXT) for text in self._list(name))

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0. Raises MessageError."""
        return tuple(map(_number, self._list(name)))

    def _list(self, name: str) -> list[object]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise MessageError
        return value

    def mapping(self, name: str, longest: int = LONGEST_TEXT) -> dict[str, str]:
        """Return names and texts, each of at most `longest` characters. Raises MessageError."""
        value = self.fields.get(name)
        if not isinstance(value, dict):
            raise MessageError
        return {_text(key, longest): _text(text, longest) for key, text in value.items()}


def _number(value: object) -> int:
    """Return a whole number from 0. Raises MessageError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MessageError
    if not 0 <= value <= LARGEST_NUMBER:
        raise MessageError
    return value


def _text(value: object, longest: int) -> str:
    """Return a printable text of one line. Raises MessageError."""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise MessageError
    return value


def encode(message: Message) -> bytes:
    """Return the message as one line of ASCII JSON, without a newline."""
    return json.dumps({"kind": message.kind, **message.fields}, separators=(",", ":")).encode()


def decode(payload: bytes) -> Message:
    """Parse a message. Raises MessageError."""
    try:
        fields = parse_object(payload.decode())
    except (UnicodeDecodeError, StrictJSONError):
        raise MessageError from None
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise MessageError
    return Message(kind, fields)


def fitting(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return as many problems as fit into a message, printable and shortened."""
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
    """Read the problems of a message. Raises MessageError."""
    rows = message.fields.get("problems")
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_SHOWN:
        raise MessageError
    return fitting(_problem(row) for row in rows)


def _problem(row: object) -> Problem:
    if not isinstance(row, list) or [type(text) for text in row] != [str] * 4:
        raise MessageError
    return Problem(*row)

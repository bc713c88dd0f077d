"""The header before each operation's bytes, and the records that neighbours exchange besides.

The numbers in headers and records are in network byte order. The content is in the machine's own
order, which is little-endian wherever TensorFlow runs.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

HEADER = struct.Struct("!4sIIHHHHQ32sI")
CHECKSUM = struct.Struct("!I")
"""The checksum covers the whole header. Only the sender knows the length of a broadcast, so no
other rank can compare it."""
RECORD = struct.Struct("!4sBxHHHIQ")
HEADER_MARK, RECORD_MARK = b"RING", b"WORD"
LONGEST_TEXT = 1000
LONGEST_WHAT = 32


class Operation(IntEnum):
    """The kind of an operation."""

    ALL_REDUCE = 1
    SIZES = 2
    ALL_GATHER = 3
    BROADCAST = 4
    BARRIER = 5


class Word(IntEnum):
    """The kind of a record."""

    ALIVE = 1
    LOST = 2
    OUT_OF_STEP = 3
    ABORTED = 4
    LEFT = 5
    """`number` is the operation after which the sender left."""
    OTHER_CALL = 6
    LEFT_BEFORE = 7
    """`LEFT` of another rank, reported by a rank that still needed it."""
    REFUSED = 8


@dataclass(frozen=True, slots=True)
class Header:
    """One operation as a rank calls it. All ranks must agree on everything but `rank`.

    Attributes:
        generation: the number of the ring.
        operation: the number of the operation in this ring, from 1.
        rank: the sender's rank.
        size: the number of ranks.
        kind: an Operation.
        detail: the number formats of a sum, or the holder's rank in a broadcast; else 0.
        length: the number of values in a sum; in other operations a number of bytes.
        what: the purpose of the operation, in words for a person; at most LONGEST_WHAT bytes.
    """

    generation: int
    operation: int
    rank: int
    size: int
    kind: int
    detail: int
    length: int
    what: str = ""

    def pack(self) -> bytes:
        """Encode the header, HEADER.size bytes."""
        place = self.generation, self.operation, self.rank, self.size
        content = self.kind, self.detail, self.length, self.what.encode()
        packed = HEADER.pack(HEADER_MARK, *place, *content, 0)[: -CHECKSUM.size]
        return packed + CHECKSUM.pack(zlib.crc32(packed))

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        """Decode a header.

        Raises:
            ValueError: the bytes are not a valid header.
        """
        mark, *fields, checksum = HEADER.unpack(content)
        if mark != HEADER_MARK or checksum != zlib.crc32(content[: -CHECKSUM.size]):
            raise ValueError(f"{content!r} is no header")
        fields[-1] = fields[-1].rstrip(b"\0").decode(errors="replace")
        return cls(*fields)

    def __str__(self) -> str:
        try:
            name = Operation(self.kind).name.lower()
        except ValueError:
            name = f"unknown kind {self.kind}"
        return (
            f"operation {self.operation} of generation {self.generation}, rank {self.rank} of "
            f"{self.size}: {name}, detail {self.detail}, length {self.length:,}, "
            f"of {self.what or 'nothing named'!r}"
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A record that is sent besides the data.

    Attributes:
        word: its kind.
        origin: the rank that has sent it first.
        about: the rank that it is about.
        generation: the number of the ring.
        number: see Word.LEFT.
        text: the reason, for a person.
    """

    word: Word
    origin: int
    about: int
    generation: int
    number: int = 0
    text: str = ""

    def pack(self) -> bytes:
        """Encode the record: RECORD.size bytes, and the text."""
        text = self.text.encode()[:LONGEST_TEXT]
        fields = (self.word, len(text), self.origin, self.about, self.generation, self.number)
        return RECORD.pack(RECORD_MARK, *fields) + text


def records(content: bytearray) -> list[Record]:
    """Decode the complete records at the beginning of the content, and remove them from it.

    Raises:
        ValueError: the bytes are not a valid record.
    """
    found = []
    while len(content) >= RECORD.size:
        mark, word, length, origin, about, generation, number = RECORD.unpack_from(content)
        if mark != RECORD_MARK or length > LONGEST_TEXT:
            raise ValueError(f"{bytes(content[: RECORD.size])!r} is no record")
        end = RECORD.size + length
        if len(content) < end:
            break
        text = content[RECORD.size : end].decode(errors="replace")
        del content[:end]
        found.append(Record(Word(word), origin, about, generation, number, text))
    return found

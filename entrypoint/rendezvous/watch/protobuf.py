"""The part of Protobuf's encoding that two small messages of TensorFlow need.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Types of fields."""
LENGTHS = {FIXED64: 8, FIXED32: 4}


def number(field: int, value: int) -> bytes:
    """Return a field that holds a whole number from 0."""
    return _varint(field << 3 | VARINT) + _varint(value)


def content(field: int, value: bytes) -> bytes:
    """Return a field that holds bytes: a text or another message."""
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value


def numbers(message: bytes) -> dict[int, int]:
    """Return a message's numbers by field. Raises ValueError for an invalid message."""
    return {field: value for field, value in _fields(message) if isinstance(value, int)}


def contents(message: bytes, field: int) -> list[bytes]:
    """Return all values of a field. Raises ValueError like `numbers`."""
    found = ((number, value) for number, value in _fields(message))
    return [value for number, value in found if number == field and isinstance(value, bytes)]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, at = _read_varint(message, at)
        elif kind in LENGTHS:
            length = LENGTHS[kind]
        else:
            raise ValueError(f"a field of type {kind}")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(value: int) -> bytes:
    """Return a number in groups of 7 bits, the lowest first; all but the last have bit 8."""
    groups = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and the position after it."""
    value = shift = 0
    for here in range(at, len(message)):
        value |= (message[here] & 0x7F) << shift
        shift += 7
        if message[here] < 0x80:  # noqa: PLR2004 -- bit 8
            return value, here + 1
    raise ValueError("a number that does not end")

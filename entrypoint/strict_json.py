"""Strict JSON: duplicate keys, NaN, infinite numbers and deep nesting are refused."""

from __future__ import annotations

import json
import math

DEEPEST = 32
"""The largest number of nested levels. A TF_CONFIG has four; Python fails at its own limit."""

LONGEST_KEY = 80
"""The number of characters of a key that a message shows."""


class StrictJSONError(ValueError):
    """The text is not strict JSON; the message is a sentence that explains why.

    The sentence gives the position, and never quotes a value, which may be a secret.
    """


def not_shown(text: str) -> str:
    """Return the form in which a message shows an invalid text: its length only."""
    return f"({len(text)} characters, not shown)" if text else text


def parse_object(text: str) -> dict[str, object]:
    """Parse a JSON object. Raises StrictJSONError."""
    document = parse(text)
    if not isinstance(document, dict):
        reason = "It is JSON, but not an object."
        raise StrictJSONError(reason)
    return document


def parse(text: str) -> object:
    """Parse a JSON value. Raises StrictJSONError."""
    try:
        document: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")  # "Unterminated string starting at"
        reason = f"It is not JSON: {what} at line {error.lineno}, column {error.colno}."
        raise StrictJSONError(reason) from None
    except RecursionError:
        raise StrictJSONError(_too_deep()) from None
    _check_depth(document)
    return document


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            reason = f'It has the key "{name[:LONGEST_KEY]}" twice.'
            raise StrictJSONError(reason)
        members[name] = value
    return members


def _constant(text: str) -> object:
    reason = f"{text} is not a JSON number."
    raise StrictJSONError(reason)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        reason = "It has a number that is too large."
        raise StrictJSONError(reason)
    return number


def _int(text: str) -> int:
    """Return a number of up to 18 digits. int() itself fails with thousands of digits."""
    if len(text) > 18:  # noqa: PLR2004
        reason = "It has a number that is too large."
        raise StrictJSONError(reason)
    return int(text)


def _check_depth(document: object) -> None:
    """Refuse a text that is nested so deeply that writing it again could fail."""
    level = [document]
    for _ in range(DEEPEST):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise StrictJSONError(_too_deep())


def _too_deep() -> str:
    return f"It is nested more than {DEEPEST} levels deep."

"""Parses the texts of options: each form states what it accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from entrypoint.cluster.addresses import AddressError, parse_address

T = TypeVar("T")

MOST_DIGITS = 9
HTTP_PORT, LARGEST_PORT = 80, 65_535
NO = ("", "no", "off", "false")


@dataclass(frozen=True)
class Form(Generic[T]):
    """The accepted values of an option."""

    accepted: str
    """A phrase for messages and documents: "a whole number from 0"."""
    parse: Callable[[str], T | None]
    """Returns None for a text that is not accepted."""


def parse_whole_number(text: str) -> int | None:
    """Return a number of up to 9 ASCII digits, else None. int() accepts other forms, too."""
    match = re.fullmatch(rf"\s*(-?[0-9]{{1,{MOST_DIGITS}}})\s*", text)
    return int(match[1]) if match else None


def whole_number(low: int, high: int | None = None, *, but: Sequence[int] = ()) -> Form[int]:
    """Return the form of a whole number from low to high (None: no bound), without some."""

    def parse(text: str) -> int | None:
        number = parse_whole_number(text)
        fits = number is not None and low <= number and (high is None or number <= high)
        return number if fits and number not in but else None

    bounds = f"from {low}" if high is None else f"from {low} to {high}"
    exceptions = f", except {', '.join(map(str, but))}" if but else ""
    return Form(f"a whole number {bounds}{exceptions}", parse)


def flag() -> Form[int]:
    """Return the form of 0 or 1. Any text is accepted: users' programs read the same variable."""

    def parse(text: str) -> int:
        return 0 if text.strip().lower().lstrip("0") in NO else 1

    return Form("1; or 0, no, off, false", parse)


def seconds() -> Form[float]:
    """Return the form of a number of seconds, with or without a fraction."""

    def parse(text: str) -> float | None:
        return float(text) if re.fullmatch(r"\s*[0-9]{1,7}(\.[0-9]{1,6})?\s*", text) else None

    return Form("a number of seconds from 0", parse)


def choice(*words: str) -> Form[str]:
    """Return the form of one of these words, in upper or lower case."""

    def parse(text: str) -> str | None:
        word = text.strip().lower()
        return word if word in words else None

    return Form(" or ".join(words), parse)


def http_url() -> Form[str]:
    """Return the form of the address of an HTTP server, without a path."""

    def parse(text: str) -> str | None:
        shown = text.strip().rstrip("/")
        match = re.fullmatch(r"http://(\S+)", shown)
        try:
            parse_address(match[1] if match else "", HTTP_PORT)
        except AddressError:
            return None
        return shown

    return Form("http:// with a host, and a port if it is not 80", parse)


def hexadecimal(fewest_digits: int) -> Form[str]:
    """Return the form of a digest."""

    def parse(text: str) -> str | None:
        return text if re.fullmatch(f"[0-9a-f]{{{fewest_digits},64}}", text) else None

    return Form(f"{fewest_digits} to 64 digits from 0 to f", parse)


def secret(fewest_characters: int) -> Form[str]:
    """Return the form of a secret; a file's final newline is not part of it."""

    def parse(text: str) -> str | None:
        return text.strip() if len(text.strip()) >= fewest_characters else None

    random = f"at least {fewest_characters} random characters (openssl rand -hex 16 makes some)"
    return Form(f"{random}, the same on every worker", parse)


def path(accepted: str) -> Form[str]:
    """Return the form of a path; its existence is checked when it is used."""
    return Form(accepted, lambda text: text)

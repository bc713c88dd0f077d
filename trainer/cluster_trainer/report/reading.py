"""A run's files, read as far as they can be; what cannot be read is said in sentences.

A run may have been killed in the middle of a line, on a disk that was full, or be of another
version; and whatever trained there could write there. So nothing in these files is taken on trust.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_trainer.results.journal import is_time

Json = dict[str, Any]
NOT_RECORDED = "not recorded"
MAX_COUNT = 2**53
MAX_NUMBER = 1e100
"""What is drawn has to be added and multiplied, too."""
MAX_LEVELS = 20
SHOWN = 60
NAMED = 3


def is_number(value: Any) -> bool:
    """Tell whether it is a number, and a finite one."""
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_one and abs(value) <= MAX_NUMBER


def is_count(value: Any) -> bool:
    """Tell whether it is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


@dataclass(frozen=True)
class MemberKind:
    """What a member of an object may be; any may be null, which says that it is not known."""

    accepted: str
    is_one: Callable[[Any], bool]


TEXT = MemberKind("a text", lambda value: isinstance(value, str))
COUNT = MemberKind("a whole number from 0", is_count)
NUMBER = MemberKind("a number", is_number)
SECONDS = MemberKind("seconds, 0 or more", lambda value: is_number(value) and value >= 0)
TIME = MemberKind("seconds since 1970", is_time)
OBJECT = MemberKind("an object", lambda value: isinstance(value, dict))


class ReadError(ValueError):
    """Says what of a file, or of a line of it, cannot be read."""


class FileReader:
    """Reads the files of a run's folder.

    Args:
        folder: the run's, from which files are named.

    Attributes:
        unread: what could not be read, a sentence each.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.unread: list[str] = []

    def note(self, file: Path, what: object) -> None:
        """Note what of a file could not be read."""
        self.unread.append(f"{file.relative_to(self._folder)}: {what}")

    def text(self, file: Path) -> str | None:
        """Return what is in a file; None where there is none, or none that can be read."""
        try:
            if file.is_file():  # a pipe would be waited for
                return file.read_text(encoding="utf-8", errors="replace")
            if file.exists():
                self.note(file, "it is no file")
        except OSError as error:
            self.note(file, error.strerror)
        return None

    def has(self, file: Path) -> bool:
        """Tell whether a file is there."""
        try:
            return file.exists()
        except OSError:  # what cannot be looked into has been noted by now
            return False

    def document(self, file: Path, kinds: Mapping[str, MemberKind]) -> Json | None:
        """Return the one object of a file, without the members that are not what they should be.

        None where there is none, or none that can be read.
        """
        text = self.text(file)
        if text is None:
            return None
        try:
            clean, wrong = members(parsed(text), kinds)
        except ReadError as error:
            self.note(file, error)
            return None
        for sentence in wrong:
            self.note(file, sentence)
        return clean

    def lines(
        self, file: Path, check: Callable[[Json], tuple[Json | None, list[str]]]
    ) -> list[Json]:
        """Return the objects of a file that has one a line.

        Args:
            file: an empty one has none, which is nothing to note.
            check: returns what is left of one, None if nothing is, and what is wrong with it.
        """
        found, wrong = [], []
        for number, text in enumerate((self.text(file) or "").split("\n"), start=1):
            if not text.strip():
                continue
            try:
                clean, sentences = check(parsed(text))
            except ReadError as error:
                clean, sentences = None, [str(error)]
            wrong += [f"line {number}: {sentence}" for sentence in sentences]
            if clean is not None:
                found.append(clean)
        for sentence in wrong[:NAMED]:
            self.note(file, sentence)
        if len(wrong) > NAMED:
            self.note(file, f"and {len(wrong) - NAMED} more of the kind")
        return found


def parsed(text: str) -> Json:
    """Return the object that a text is.

    Raises:
        ReadError: it is none.
    """
    if not text.strip("\0 \t\r\n"):  # zeros: of a machine that lost its power
        raise ReadError("it is empty")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ReadError(f"no JSON, or not all of it: {shown(text)}") from None
    if not isinstance(found, dict) or not _is_flat(found, MAX_LEVELS):
        raise ReadError(f"no object as a run writes it: {shown(text)}")
    return found


def members(
    found: Mapping[str, Any], kinds: Mapping[str, MemberKind], of: str = ""
) -> tuple[Json, list[str]]:
    """Return an object without what is not as it should be, and a sentence for each of that."""
    clean, wrong = {}, []
    for name, value in found.items():
        kind = kinds.get(name)
        if kind is None or value is None or kind.is_one(value):
            clean[name] = value
        else:
            wrong.append(refusal(of + name, value, kind.accepted))
    return clean, wrong


def refusal(name: str, value: Any, accepted: str) -> str:
    """Return the sentence about a value that is not what it should be."""
    return f"{shown(name)}: received {shown(value)}; accepted: {accepted}"


def shown(value: Any) -> str:
    """Return a value as a sentence has it: short, and of printable letters alone."""
    text = value if isinstance(value, str) else json.dumps(value)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _is_flat(value: Any, levels: int) -> bool:
    """Tell whether a value has no more levels of objects and lists within each other."""
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)):
        return True
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner)

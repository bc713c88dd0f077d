"""Reads a run's files as far as possible, and notes what cannot be read.

A run may have been killed in the middle of a line, have met a full disk, or be of another version.
Any program may have written into its folder. So nothing in these files is trusted.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

Json = dict[str, Any]
NOT_RECORDED = "not recorded"
SHOWN = 60
NAMED = 3


class FileReader:
    """Reads the files of a run's folder.

    Args:
        folder: the run's folder; files are named relative to it.

    Attributes:
        unread: a sentence about each part that could not be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.unread: list[str] = []

    def note(self, file: Path, what: object) -> None:
        """Note the part of a file that could not be read."""
        self.unread.append(f"{file.relative_to(self._folder)}: {what}")

    def has(self, file: Path) -> bool:
        """Tell whether a file exists."""
        try:
            return file.exists()
        except OSError:  # an unreadable folder has been noted by now
            return False

    def document(self, file: Path, form: TypeAdapter[Any]) -> Any:
        """Return the JSON object in a file; None: there is none in this format."""
        content = self._content(file)
        if content is None:
            return None
        try:
            return _parsed(content, form)
        except ValueError as error:
            self.note(file, error)
            return None

    def lines(self, file: Path, form: TypeAdapter[Any]) -> list[Json]:
        """Return the objects of a file with one per line; lines in another format are omitted."""
        found, wrong = [], []
        for number, line in enumerate((self._content(file) or b"").split(b"\n"), start=1):
            try:
                found += [_parsed(line, form)] if line.strip() else []
            except ValueError as error:
                wrong.append(f"line {number}: {error}")
        for sentence in wrong[:NAMED]:
            self.note(file, sentence)
        if len(wrong) > NAMED:
            self.note(file, f"and {len(wrong) - NAMED} more of the kind")
        return found

    def _content(self, file: Path) -> bytes | None:
        try:
            if file.is_file():  # reading a pipe would block
                return file.read_bytes()
            if file.exists():
                self.note(file, "it is no file")
        except OSError as error:
            self.note(file, error.strerror)
        return None


def shown(value: Any) -> str:
    """Return a value for a sentence: shortened, with printable characters only."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _parsed(content: bytes, form: TypeAdapter[Any]) -> Any:
    """Return the object in a JSON text.

    Raises:
        ValueError: the text is not JSON in this format; it describes the first error.
    """
    try:
        found = json.loads(content.decode(errors="replace"))
        # File names need not be text, which pydantic's own parser requires.
        text = json.dumps(found, ensure_ascii=False).encode(errors="replace")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON, or not all of it: {shown(str(error))}") from None
    try:
        return form.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = shown(".".join(map(str, first["loc"]))) or "it"
        sentence = f"{place}: {first['msg']}; received {shown(first['input'])}"
        raise ValueError(sentence) from None

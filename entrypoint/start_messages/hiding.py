"""Hides the values of secrets in an explanation. A secret is identified by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from entrypoint.errors import HIDDEN, is_secret
from entrypoint.strict_json import StrictJSONError, not_shown, parse_object

NAMED = re.compile(r"(?<![\w-])(?:[\w-]+=|-[\w-]+\s)")
"""The name before a value: `--api-key=…`, `API_KEY=…` as `env` takes it, or `--api-key …` within a
script of `sh -c`."""


def shown_value(name: str, text: str) -> str:
    """Return a variable's value as an explanation shows it."""
    if text and is_secret(name):
        return HIDDEN
    return _without_job(text) if name == "CLUSTER_SPEC" else text


def _without_job(text: str) -> str:
    """Return CLUSTER_SPEC without "job": Vertex AI puts the containers' own variables there."""
    try:
        document = parse_object(text)
    except StrictJSONError:  # another source is used
        return not_shown(text)
    return json.dumps({key: value for key, value in document.items() if key != "job"})


def shown_command(words: Iterable[str]) -> list[str]:
    """Return a command's words; what follows the name of a secret is hidden."""
    shown: list[str] = []
    is_value = False
    for word in words:
        is_hidden = is_value and not word.startswith("-")
        shown.append(HIDDEN if is_hidden else _without_secret(word))
        is_value = word.startswith("-") and "=" not in word and is_secret(word)
    return shown


def _without_secret(word: str) -> str:
    """Return a word, or only its part before the first value with a secret's name."""
    for name in NAMED.finditer(word):
        if is_secret(name[0]):
            return f"{word[: name.end()]}{HIDDEN}"
    return word

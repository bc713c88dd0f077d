"""Hides the values of secrets in an explanation. A secret is identified by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from entrypoint.errors import HIDDEN, is_secret, without_password
from entrypoint.strict_json import StrictJSONError, not_shown, parse_object

NAMED = re.compile(
    r"""(?<![\w.-])
    (?: [\w.-]+ [\\"'\]]* \s* (?: = | : | <- )   # API_KEY=…, "api_key": …, key = … or key <- …
      | -[\w.-]+ [\\"']* [\s,]                   # --api-key … within a script, or a JSON list
    ) \s*""",
    re.VERBOSE,
)
"""The name before a value within a word of a command."""
HEADER = "AUTHORIZATION"
"""The HTTP header that holds a secret, besides names such as X-Api-Key."""


def shown_value(name: str, text: str) -> str:
    """Return a variable's value as an explanation shows it."""
    if text and is_secret(name):
        return HIDDEN
    shown = _without_job(text) if name == "CLUSTER_SPEC" else text
    return without_password(shown)


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
        is_hidden = is_value and not word.startswith("--")
        shown.append(HIDDEN if is_hidden else _without_secret(word))
        is_value = _names_secret(word) and (
            word.endswith(":") or (word.startswith("-") and "=" not in word)
        )
    return shown


def _without_secret(word: str) -> str:
    """Return a word without passwords, cut off after the first name of a secret."""
    word = without_password(word)
    for name in NAMED.finditer(word):
        if name.end() < len(word) and _names_secret(name[0]):
            return f"{word[: name.end()]}{HIDDEN}"
    return word


def _names_secret(text: str) -> bool:
    return is_secret(text) or HEADER in text.upper()

"""Hides the values of secrets in an explanation. A secret is identified by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from entrypoint.errors import HIDDEN, is_secret
from entrypoint.strict_json import StrictJSONError, not_shown, parse_object

ASSIGNMENT = re.compile(r"(-{0,2}[\w-]+)=(.*)", re.DOTALL)
"""`--api-key=…`, or `API_KEY=…` as `env` takes it."""


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
    """Return a command's words; the value of a flag with a secret's name is hidden."""
    shown: list[str] = []
    is_value = False
    for word in words:
        assignment = ASSIGNMENT.fullmatch(word)
        if is_value and not word.startswith("-"):
            shown.append(HIDDEN)
        elif assignment and is_secret(assignment[1]):
            shown.append(f"{assignment[1]}={HIDDEN}")
        else:
            shown.append(word)
        is_value = word.startswith("-") and not assignment and is_secret(word)
    return shown

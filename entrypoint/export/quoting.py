"""Quotes texts for YAML, and for what schedulers expand inside of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def in_yaml(text: str) -> str:
    """Return a double-quoted YAML scalar, in ASCII.

    JSON's quoting would not do: it writes characters beyond U+FFFF as two surrogates.
    """
    return '"' + "".join(map(_character, text)) + '"'


def _character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    return f"\\U{ord(char):08x}"


def list_in_yaml(texts: Iterable[str]) -> str:
    """Return a list on one line."""
    return f"[{', '.join(map(in_yaml, texts))}]"


def lines_in_yaml(texts: Mapping[str, str], indent: int) -> str:
    """Return the lines of a mapping; the first one is not indented."""
    lines = (f"{name}: {in_yaml(text)}" for name, text in texts.items())
    return f"\n{' ' * indent}".join(lines)


def literal(text: str) -> str:
    """Return a text in which Kubernetes and Compose expand no variable: `$$` stands for `$`.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    https://docs.docker.com/reference/compose-file/interpolation/
    """
    return text.replace("$", "$$")


def literal_in_swarm(text: str) -> str:
    """Return a text in which Swarm, too, expands nothing: its variables are Go templates."""
    return literal(text.replace("{{", '{{"{{"}}'))

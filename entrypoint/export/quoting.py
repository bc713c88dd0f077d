"""Quotes texts for YAML, and escapes the variables that schedulers would expand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def in_yaml(text: str) -> str:
    """Return a double-quoted YAML scalar, in ASCII.

    JSON's quoting is not valid here: it writes characters above U+FFFF as two surrogates.
    """
    return '"' + "".join(map(_character, text)) + '"'


def _character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    return f"\\U{ord(char):08x}"


def list_in_yaml(texts: Iterable[str]) -> str:
    """Return a YAML list on one line."""
    return f"[{', '.join(map(in_yaml, texts))}]"


def lines_in_yaml(texts: Mapping[str, str], indent: int) -> str:
    """Return the lines of a YAML mapping. The first line is not indented."""
    lines = (f"{name}: {in_yaml(text)}" for name, text in texts.items())
    return f"\n{' ' * indent}".join(lines)


def literal(text: str) -> str:
    """Write `$` as `$$`, so that Kubernetes and Compose expand no variables.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    https://docs.docker.com/reference/compose-file/interpolation/
    """
    return text.replace("$", "$$")


def literal_in_swarm(text: str) -> str:
    """Escape variables and Go templates, both of which Swarm expands."""
    return literal(text.replace("{{", '{{"{{"}}'))

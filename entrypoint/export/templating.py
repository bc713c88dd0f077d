"""Fills in the templates of `export`."""

from __future__ import annotations

from pathlib import Path
from string import Template

TEMPLATES = Path(__file__).with_name("templates")


def fill_in(template: str, **values: str) -> str:
    """Return a template's text with its values. Raises KeyError if one is missing."""
    return Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)

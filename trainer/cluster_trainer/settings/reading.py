"""Reads settings from variables in a mapping, and from flags in a list."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_settings import BaseSettings, CliSettingsSource, EnvSettingsSource


class Variables(EnvSettingsSource):
    """TRAINER_ variables from a given mapping."""

    def __init__(
        self, settings: type[BaseSettings], environ: Mapping[str, str], prefix: str
    ) -> None:
        self._environ, self._prefix = environ, prefix
        super().__init__(settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {
            name.lower(): text
            for name, text in self._environ.items()
            if name.startswith(self._prefix) and text.strip()
        }


class Flags(CliSettingsSource[Any]):
    """--flags from a given list.

    Args:
        settings: the class of the settings.
        arguments: the list of flags and values.
        flags: the names of all known flags.
    """

    def __init__(
        self, settings: type[BaseSettings], arguments: Sequence[str], flags: Sequence[str]
    ) -> None:
        super().__init__(
            settings,
            cli_prog_name="trainer",
            cli_parse_args=[_dashed(argument, flags) for argument in arguments],
            cli_exit_on_error=False,
            formatter_class=_wide_help,
        )


def _dashed(argument: str, flags: Sequence[str]) -> str:
    """Turn --learning_rate, as Vertex AI's tuning writes a flag, into --learning-rate.

    Source: https://cloud.google.com/vertex-ai/docs/training/using-hyperparameter-tuning
    """
    flag, equals, value = argument.partition("=")
    dashed = flag.replace("_", "-")
    return dashed + equals + value if dashed in flags else argument


def _wide_help(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=34, width=100)


def without_values(arguments: Sequence[str]) -> list[str]:
    """Return the flags and other words, without the flags' values, which may be secrets."""
    flags: list[str] = []
    before = ""
    for argument in arguments:
        may_be_value = before.startswith("-") and "=" not in before
        if argument.startswith("-") or not may_be_value:
            flags.append(argument.partition("=")[0])
        before = argument
    return flags


def did_you_mean(received: str, known: Iterable[str]) -> str:
    """Return advice if a name is similar to a known one; else ""."""
    close = get_close_matches(received, known, n=1)
    return f"Did you mean {close[0]}?" if close else ""

"""Defines the treatments of a first batch that TRAINER_FIRST_BATCH can choose."""

from collections.abc import Callable
from dataclasses import dataclass

MODES = ("check", "refuse", "off")


@dataclass(frozen=True)
class FirstBatchMode:
    """The treatment of a first batch.

    Attributes:
        name: one of MODES.
        available_bytes: returns the memory that is left, in bytes; None: it is not checked.
    """

    name: str = MODES[0]
    available_bytes: Callable[[], int] | None = None

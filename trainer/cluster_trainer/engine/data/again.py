"""Batches of a failed call that are read again, to explain why a step has failed."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_trainer.engine.data.pieces import TOGETHER, Component

MOST_SECONDS = 30.0
"""How long to read, and then to look for the batch that has failed."""


@dataclass(frozen=True)
class Again:
    """The batches of a call, as one device would get them.

    Attributes:
        batches: the whole batches, from the first one of the call on.
        spec: their specification; None: that of the first batch.
        components: the parts of a batch that were batched together; see pieces.py.
    """

    batches: Iterable[Any]
    spec: Any = None
    components: Sequence[Component] = TOGETHER


def after(batches: Iterable[Any], first: int) -> Iterator[Any]:
    """Yield the batches after the `first` ones, unless reading those takes too long."""
    until = time.monotonic() + MOST_SECONDS
    for index, one in enumerate(batches):
        if index >= first:
            yield one
        elif time.monotonic() > until:
            return

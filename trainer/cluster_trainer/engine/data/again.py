"""Batches of a failed call that are read again, to explain why a step has failed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_trainer.engine.data.pieces import TOGETHER, Component


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

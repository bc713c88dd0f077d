"""Reads the batches of a call again whose loss was NaN, to find out whether one device has it, too.

A mask or a filter may leave a replica's share of a batch without any element, although the whole
batch has some. A mean over no element is NaN, and so are all weights after that step.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine.data.again import MOST_SECONDS, Again
from cluster_trainer.engine.data.batch_shares import cut
from cluster_trainer.engine.data.pieces import TOGETHER
from cluster_trainer.engine.data.sources.source import Source

WHAT = "a batch that is read again"
log = logging.getLogger("trainer")


def is_in(logs: Mapping[str, Any]) -> bool:
    """Tell whether a loss in a step's logs is NaN."""
    losses = [one for name, one in logs.items() if "loss" in name and np.ndim(one) == 0]
    return any(np.isnan(float(one)) for one in losses)


def shares_of(again: Again | None, strategy: tf.distribute.Strategy) -> Iterator[Any]:
    """Yield the local replicas' shares of each batch, for a limited time; all workers call this."""
    several, workers = Replicas.of(strategy), workers_of(strategy)
    until = time.monotonic() + MOST_SECONDS
    batches = iter(again.batches if again else ())
    while True:
        whole = next(batches, None)
        is_one = whole is not None and time.monotonic() < until
        if not all(workers.gather(int(is_one), WHAT)):
            return
        yield cut(whole, several, again.components if again else TOGETHER)


def reason_not_to_read(source: Source) -> str:
    """Return why batches cannot be read again while the fit continues; "": they can."""
    if source.is_distributed:
        return "TensorFlow shares the data out"
    return "a program's own code makes the data" if source.calls_users else ""


def reason_of_doubt(source: Source, whys: Sequence[str], done: int) -> str:
    """Return why batches that were read again may not explain a loss of NaN; "": they do.

    Args:
        source: the source of the batches.
        whys: for each batch the reason why it could not be compared; "" if it was.
        done: the number of steps of the call.
    """
    if any(whys):
        return next(filter(None, whys))
    if len(whys) < done:
        return f"only {len(whys)} of the batches of {done} steps could be read again in time"
    return "" if source.is_ours else "the data may have another order when they are read again"


def say_unknown(why: str) -> None:
    """Warn of a loss of NaN that may be finite on one device."""
    log.warning(
        "the loss is nan. On one device it may be finite, because a mask or a filter may leave no "
        "element in a share of a batch, and a mean over none is nan. That could not be found out: "
        "%s. Read docs/reference/keras.md, The first batch",
        why,
    )

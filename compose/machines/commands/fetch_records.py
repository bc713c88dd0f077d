"""Copies the workers' records to this machine, for `report` and `tensorboard`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress

from local_cluster.messages import complain
from machines.cluster_record import Kept
from machines.commands.fetch import fetch, hand_over
from machines.copies import results
from machines.machine import at_once

LARGE = ("checkpoints", "model.keras", "saved_model", "*.keras", "*.npz")
"""The files that neither a report nor TensorBoard needs."""
EVERY_SECONDS = 20.0


def fetch_records(kept: Kept, environ: Mapping[str, str]) -> None:
    """Copy the records of all workers. If a machine is away, earlier copies of its files stay."""
    if fetch(kept, environ, *LARGE):
        complain("some records could not be fetched; earlier copies are shown instead")


def keep_fetching(kept: Kept, environ: Mapping[str, str]) -> None:
    """Copy the records periodically, in a child process that ends when this process ends."""
    parent = os.getpid()
    if os.fork():
        return
    with suppress(BaseException):
        while os.getppid() == parent:
            time.sleep(EVERY_SECONDS)
            at_once(lambda pair: results.fetch(pair[0], pair[1], kept, LARGE), kept.places)
            hand_over(kept, environ)
    os._exit(0)

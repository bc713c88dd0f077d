"""Warns of callbacks that only some workers have."""

import logging
from functools import cache

log = logging.getLogger("trainer")


@cache
def warn_of_callbacks(values: str) -> None:
    """Warn once that callbacks which steer a fit differ between workers.

    Args:
        values: a text that lists each worker's callbacks.
    """
    log.warning(
        "the callbacks that steer the fit differ between workers: %s. A fit ends on all workers "
        "as soon as one of them stops it. A learning rate or weights that a callback changes on "
        "some workers only are replaced by the first worker's. Give all workers the same callbacks",
        values,
    )

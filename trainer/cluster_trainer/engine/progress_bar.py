"""Changes Keras's own progress bar: plain text in a pipe, and the actual number of batches."""

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from cluster_trainer.engine import running

PLAIN = 2
"""The value of Keras's `verbose` for one line at the end."""


def can_draw(environ: Mapping[str, str]) -> bool:
    """Tell whether a bar can be redrawn: on a capable terminal, or in a notebook."""
    draws_well = environ.get("TERM", "") not in ("", "dumb", "unknown")
    is_terminal = getattr(sys.stdout, "isatty", lambda: False)()  # a script may have its own stdout
    is_drawn = is_terminal and draws_well and not environ.get("NO_COLOR")
    return is_drawn or "ipykernel" in sys.modules


def plain(begin: Callable[..., None]) -> Callable[..., None]:
    """Return the `__init__` of a bar that prints one line at its end instead.

    In a pipe, Keras redraws its bar twenty times a second, with colours, as on a terminal.
    """

    @wraps(begin)
    def begin_plain(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        self.verbose = PLAIN if self.verbose == 1 else self.verbose

    return begin_plain


def counting(update: Callable[..., None]) -> Callable[..., None]:
    """Return an update of the bar that shows the actual number of batches.

    Keras determines a call's last batch before the call runs, and data of unknown length may end
    within the call.
    """

    @wraps(update)
    def of_those_that_were(self: Any, batch: int, logs: Any = None) -> None:
        done = running.current().done
        update(self, batch if done is None else min(batch, done() - 1), logs)

    return of_those_that_were

"""Keras's own progress bar, where nothing but text may be printed."""

import sys
from collections.abc import Mapping
from functools import wraps
from typing import Any

from keras.utils import Progbar

from cluster_trainer.engine import running
from cluster_trainer.private import keras_names

PLAIN = 2
"""Keras's `verbose` for one line at the end."""


def be_plain_without_a_terminal(environ: Mapping[str, str]) -> None:
    """Print one line at the end of an epoch, an evaluation or a prediction in place of a bar.

    In a pipe Keras draws its bar anew twenty times a second, with colours, as on a terminal.

    Args:
        environ: NO_COLOR and TERM, by which a terminal is told to be one of text alone.
    """
    draws_well = environ.get("TERM", "") not in ("", "dumb", "unknown")
    is_terminal = getattr(sys.stdout, "isatty", lambda: False)()  # a script may have its own stdout
    is_drawn = is_terminal and draws_well and not environ.get("NO_COLOR")
    if is_drawn or "ipykernel" in sys.modules:
        return
    begin = Progbar.__init__

    @wraps(begin)
    def plain(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        self.verbose = PLAIN if self.verbose == 1 else self.verbose

    Progbar.__init__ = plain


def count_what_was_done() -> None:
    """Let the bar show the batches that there were: data of unknown length may end within a call.

    Keras tells callbacks of a call's last batch before it is made.
    """
    update = keras_names.UPDATE_PROGBAR.own

    @wraps(update)
    def of_those_that_were(self: Any, batch: int, logs: Any = None) -> None:
        done = running.current().done
        update(self, batch if done is None else min(batch, done() - 1), logs)

    keras_names.UPDATE_PROGBAR.put(of_those_that_were)

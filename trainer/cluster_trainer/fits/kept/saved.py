"""What follows from each checkpoint that a worker has written."""

import time
from collections.abc import Sequence
from typing import Any

from cluster_trainer.checkpoints.saver import touch
from cluster_trainer.fits.kept.ended import EndedFit, ended_fits
from cluster_trainer.fits.kept.options import FitOptions

NONE = -1


class Saved:
    """The newest checkpoint that this worker has written of one fit.

    Args:
        options: how the fit is kept.

    Attributes:
        furthest: the number of the furthest one that any worker had.
        outdated: ended fits whose weights nobody needs once there is one of this fit.
    """

    def __init__(self, options: FitOptions) -> None:
        self._options = options
        self._at = 0.0
        self.furthest = NONE
        self.outdated: Sequence[EndedFit] = ()

    def note(self, number: int) -> None:
        """Note that one is written.

        Args:
            number: of the checkpoint.
        """
        ended_fits.remove_weights(self.outdated, self._options.name)
        self.outdated = ()
        self._at = time.monotonic()
        # One that had ended is kept again: a script that fails behind it gets no further.
        if self._options.job.progress_file and number > self.furthest:
            touch(self._options.job.progress_file)
        self.furthest = max(self.furthest, number)

    def told(self, newest: int | None) -> dict[str, Any]:
        """Return which one this worker has written last, and when, for `status`.

        Args:
            newest: its step; None: there is none.
        """
        return {} if newest is None else {"checkpoint_step": newest, "checkpoint_at": self._at}

"""A stop that comes at a chosen moment of a run."""

from itertools import count

from cluster_trainer.process.stop import StopRequest


class StopsAt(StopRequest):
    """Asks to stop just before the workers meet for the n-th time."""

    def __init__(self, meeting):
        super().__init__(print)
        self._asked, self._stop_at = count(1), meeting

    @property
    def signal_number(self):
        return 15 if next(self._asked) >= self._stop_at else 0

    @signal_number.setter
    def signal_number(self, _):
        pass

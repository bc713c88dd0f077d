"""Being asked to stop: SIGTERM and SIGINT, heard even while TensorFlow is deaf to them.

TensorFlow's coordination service installs a C++ handler for SIGTERM that swallows it, and a
Python handler runs only between two calls of the interpreter, which may be an hour apart while
TensorFlow waits for a peer. So both signals are blocked in every thread and one thread of our own
takes them with `sigwait`, which no handler can intercept.
"""

import signal
import threading
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A stop that was asked for, or not yet.

    Attributes:
        signal_number: the signal that it came as; 0 until then.
        is_watched: whether the run looks at it from time to time, so that a grace makes sense.
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self.is_watched = False

    def listen(self, give_up: Callable[[int], None], grace_seconds: float) -> None:
        """Start to listen; call this before any other thread exists, which inherit the mask.

        Args:
            give_up: called with the signal's number where the run did not end by itself within
                the grace; it must end the process.
            grace_seconds: how long the run may take to reach its next look at this request.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        waiting = (give_up, grace_seconds)
        threading.Thread(target=self._wait, args=waiting, name="stop", daemon=True).start()

    def _wait(self, give_up: Callable[[int], None], grace_seconds: float) -> None:
        self.signal_number = signal.sigwait(STOP_SIGNALS)
        if self.is_watched:
            # A second signal is somebody who will not wait.
            signal.sigtimedwait(STOP_SIGNALS, grace_seconds)
        give_up(self.signal_number)

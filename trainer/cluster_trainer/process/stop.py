"""Ends a process early on SIGTERM and SIGINT, even while TensorFlow ignores them.

TensorFlow's coordination service installs a C++ handler for SIGTERM that swallows it, and a Python
handler runs only between two calls of the interpreter, which may be an hour apart while TensorFlow
waits for a peer. So both signals are blocked in every thread, and a thread of this module receives
them with `sigwait`, which no handler can intercept.
"""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


# The exit code of a process that a signal ended is this plus the signal's number.
SIGNAL_CODES = 128
log = logging.getLogger("trainer")


class StopRequest:
    """A stop request, or none yet.

    Attributes:
        signal_number: the number of the received signal; 0: there was none.
        is_watched: whether the run checks `signal_number` regularly, and so gets a grace period.
        ends_at_once: whether the process may end without a grace period, because nothing is lost.
        give_up: ends the process from any thread, with an exit code and the reason.
    """

    def __init__(self, give_up: Callable[[int, str], object]) -> None:
        self._handlers: dict[int, Any] = {}
        self.signal_number = 0
        self.is_watched = self.ends_at_once = False
        self.give_up = give_up

    def listen(self, grace_seconds: float) -> None:
        """Start to listen; call this before other threads exist, because they inherit the mask.

        Args:
            grace_seconds: how long a run that checks for stops may take to end by itself.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        threading.Thread(target=self._wait, args=(grace_seconds,), name="stop", daemon=True).start()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Listen with Python's signal handlers, for a process whose threads already exist.

        The handlers run between two calls of TensorFlow, which may take a second each. They replace
        the handler of its coordination service. In other threads than the main thread this does
        nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._handlers = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            # None stands for TensorFlow's C++ handler, which would swallow the signal.
            for number, handler in self._handlers.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @property
    def has_scripts_handler(self) -> bool:
        """Whether the script has its own handler for the received signal."""
        handler = self._handlers.get(self.signal_number)
        return callable(handler) and handler is not signal.default_int_handler

    def call_scripts_handler(self) -> None:
        """Call the script's own handler of the received signal, if it has one.

        `handled` has delayed it, so that a handler that saves the model sees it as in the last
        checkpoint.
        """
        if not self.has_scripts_handler:
            return
        try:
            self._handlers[self.signal_number](self.signal_number, None)
        except (SystemExit, KeyboardInterrupt):  # the process ends, with the code of its signal
            pass
        except Exception:
            log.exception("the script's own handler of %s failed", self._name)

    @property
    def _name(self) -> str:
        return signal.Signals(self.signal_number).name

    def _note(self, number: int, _: object) -> None:
        # A second signal means that the user does not want to wait.
        if self.signal_number or self.ends_at_once:
            self.give_up(SIGNAL_CODES + number, f"stopped by {signal.Signals(number).name}")
        self.signal_number = number

    def _wait(self, grace_seconds: float) -> None:
        self.signal_number = signal.sigwait(STOP_SIGNALS)
        if self.is_watched:
            # A second signal means that the user does not want to wait.
            signal.sigtimedwait(STOP_SIGNALS, grace_seconds)
        self.give_up(SIGNAL_CODES + self.signal_number, f"stopped by {self._name}")

"""Calls made by a thread of their own, one after the other, while the one that asked goes on."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Queue
from typing import Any, TypeVar

Task = tuple[Future[Any], Callable[[], Any]]
T = TypeVar("T")


def over(result: T) -> Future[T]:
    """Return what has the result of a call that is over."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


class Background:
    """Makes calls in the order in which they were given. The thread begins with the first one.

    It is a daemon: a process that ends need not wait for a call that waits for other processes.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: Queue[Task | None] = Queue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Return what will have the call's result, or the exception that it has raised."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()  # which a limit may forbid: then the next call tries again
            self._thread = thread
        future: Future[Any] = Future()
        self._tasks.put((future, call))
        return future

    def wait(self) -> None:
        """Return when all calls are over; at once if it is one of them that asks."""
        if self._thread not in {None, threading.current_thread()}:
            self._tasks.join()

    def end(self) -> None:
        """Make the calls that are left, and end the thread; nothing may be submitted any more."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()

    def _run(self) -> None:
        _interrupt_nobody()
        while self._make_next():
            pass

    def _make_next(self) -> bool:
        """Make a call; nothing of it is held while the next one is waited for."""
        task = self._tasks.get()
        try:
            if task is None:
                return False
            future, call = task
            future.set_result(call())
        except BaseException as problem:  # noqa: BLE001  it is the asker's
            future.set_exception(problem)
        finally:
            self._tasks.task_done()
        return True


def _interrupt_nobody() -> None:
    """Let this thread take the processor when it is free, or when it is its turn.

    It would interrupt what computes with each piece that arrives: in the same rounds `mobilenet_v2`
    in memory lost 4 % of its examples a second to that, and 1 % so. Another class that somebody has
    chosen for the process (`chrt`) stays.
    """
    with suppress(OSError):  # some sandboxes forbid it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

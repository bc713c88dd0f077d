"""The ring of this process, where its sums go round one and not through TensorFlow's cluster."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster_trainer.collectives.renewable import RenewableRing

Form = Callable[[], RenewableRing | None]


@dataclass
class _OfProcess:
    """What this process has: a ring, or what forms one once somebody asks for it."""

    ring: RenewableRing | None = None
    form: Form | None = None
    gradients_wire: str | None = None


class _OfThread(threading.local):
    is_left_out = False


_of_process, _of_thread = _OfProcess(), _OfThread()


def offer(form: Form) -> None:
    """Let the ring be formed by a function, once somebody asks for it.

    Args:
        form: meets the other workers; None where there are none, or TensorFlow's cluster is wanted.
            It is called once, unless it raises.
    """
    _of_process.form = form


def use(ring: RenewableRing | None) -> None:
    """Take a ring, or none from now on."""
    _of_process.ring, _of_process.form = ring, None


def is_wanted() -> bool:
    """Tell whether this process has a ring, or will have one when somebody asks for it."""
    return _of_process.ring is not None or _of_process.form is not None


def current() -> RenewableRing | None:
    """Return the ring; None where this process has none, or this thread leaves it out."""
    if _of_thread.is_left_out:
        return None
    if _of_process.form:
        use(_of_process.form())
    return _of_process.ring


@contextmanager
def left_out() -> Iterator[None]:
    """Let this thread do what is called inside by itself, as if there were no ring.

    Another one may train meanwhile, as while a generator predicts.
    """
    before, _of_thread.is_left_out = _of_thread.is_left_out, True
    try:
        yield
    finally:
        _of_thread.is_left_out = before


def send_gradients_as(wire: str) -> None:
    """Let gradients of float32 travel round the ring as float32, or rounded to bfloat16."""
    _of_process.gradients_wire = wire


def gradients_wire() -> str | None:
    """Return what gradients of float32 travel as; None: as they are."""
    return _of_process.gradients_wire


@contextmanager
def failure_told() -> Iterator[None]:
    """Raise why the ring has failed in place of what TensorFlow makes of it.

    What is not TensorFlow's error is this worker's own, and stays as it is.

    Raises:
        RingError: a worker was lost, or calls something else than this one.
    """
    try:
        yield
    except Exception as error:
        ring = _of_process.ring
        is_tensorflows = any(kind.__name__ == "OpError" for kind in type(error).__mro__)
        why = ring.error if ring and is_tensorflows else None
        if why is None:
            raise
        raise why from error

"""The ring of this process, where its sums go round one and not through TensorFlow's cluster."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.ring import Ring

AnyRing: TypeAlias = Ring | RenewableRing


def _none() -> AnyRing | None:
    return None


class _RingOfThread(threading.local):
    is_left_out = False


_of_thread = _RingOfThread()
_form: Callable[[], AnyRing | None] = _none
_ring: AnyRing | None = None
_gradients_wire: str | None = None


def offer(form: Callable[[], AnyRing | None]) -> None:
    """Let the ring be formed by a function, once somebody asks for it.

    Args:
        form: meets the other workers; None where there are none, or TensorFlow's cluster is wanted.
            It is called once, unless it raises.
    """
    global _form  # noqa: PLW0603  it is this process's
    _form = form


def use(ring: AnyRing | None) -> None:
    """Take a ring, or none from now on."""
    global _form, _ring
    _form, _ring = _none, ring


def is_wanted() -> bool:
    """Tell whether this process has a ring, or will have one when somebody asks for it."""
    return _ring is not None or _form is not _none


def current() -> AnyRing | None:
    """Return the ring; None where this process has none, or this thread leaves it out."""
    if _of_thread.is_left_out:
        return None
    if _form is not _none:
        use(_form())
    return _ring


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
    global _gradients_wire  # noqa: PLW0603  it is this process's
    _gradients_wire = wire


def gradients_wire() -> str | None:
    """Return what gradients of float32 travel as; None: as they are."""
    return _gradients_wire


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
        is_tensorflows = any(kind.__name__ == "OpError" for kind in type(error).__mro__)
        why = _ring.error if _ring and is_tensorflows else None
        if why is None:
            raise
        raise why from error

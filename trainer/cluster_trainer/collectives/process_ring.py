"""Holds the ring of this process, if it sums over a ring, and not in TensorFlow's cluster."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster_trainer.collectives.renewable import RenewableRing

Form = Callable[[], RenewableRing | None]


@dataclass
class _OfProcess:
    """The ring of this process, or the function that forms it when it is first needed."""

    ring: RenewableRing | None = None
    form: Form | None = None
    gradients_wire: str | None = None
    steps_of_round: int = 1
    are_rounds_open: bool = False


class _OfThread(threading.local):
    is_left_out = False


_of_process, _of_thread = _OfProcess(), _OfThread()


def offer(form: Form) -> None:
    """Let a function form the ring when it is first needed.

    Args:
        form: meets the other workers, and returns their ring; None: there are no others, or they
            use TensorFlow's cluster. It is called once, and again if it has raised.
    """
    _of_process.form = form


def use(ring: RenewableRing | None) -> None:
    """Use a ring, or none from now on."""
    _of_process.ring, _of_process.form = ring, None


def is_wanted() -> bool:
    """Tell whether this process has a ring, or will form one."""
    return _of_process.ring is not None or _of_process.form is not None


def current() -> RenewableRing | None:
    """Return the ring, and form it if necessary; None: this process or this thread uses none."""
    if _of_thread.is_left_out:
        return None
    if _of_process.form:
        use(_of_process.form())
    return _of_process.ring


@contextmanager
def left_out() -> Iterator[None]:
    """Let this thread work without the ring within the context.

    Other threads still use it: one may train while a generator predicts in another.
    """
    before, _of_thread.is_left_out = _of_thread.is_left_out, True
    try:
        yield
    finally:
        _of_thread.is_left_out = before


def send_gradients_as(wire: str) -> None:
    """Send float32 gradients over the ring as float32, or rounded to bfloat16."""
    _of_process.gradients_wire = wire


def gradients_wire() -> str | None:
    """Return the number format in which float32 gradients are sent; None: float32."""
    return _of_process.gradients_wire


def let_rounds_have(steps: int) -> None:
    """Let each worker take this number of steps by itself, after which weights are averaged.

    With 1, gradients are summed in each step instead.
    """
    _of_process.steps_of_round, _of_process.are_rounds_open = steps, False


def let_rounds_be_chosen() -> None:
    """Let the first fit choose how many steps each worker takes by itself; 1 until then."""
    _of_process.steps_of_round, _of_process.are_rounds_open = 1, True


def are_rounds_open() -> bool:
    """Return whether the number of steps is still to be chosen; see `let_rounds_be_chosen`."""
    return _of_process.are_rounds_open


def steps_of_round() -> int:
    """Return the number of steps that each worker takes by itself; see `let_rounds_have`."""
    return _of_process.steps_of_round


@contextmanager
def failure_told() -> Iterator[None]:
    """Replace TensorFlow's error by the reason why the ring has failed.

    An error that is not TensorFlow's is this worker's own, and stays unchanged.

    Raises:
        RingError: a worker was lost, or is in a different call.
    """
    try:
        yield
    except Exception as error:
        why = failure_behind(error)
        if why is error:
            raise
        raise why from error


def failure_behind(error: Exception) -> Exception:
    """Return the reason why the ring has failed, if an error is TensorFlow's; else the error."""
    ring = _of_process.ring
    is_tensorflows = any(kind.__name__ == "OpError" for kind in type(error).__mro__)
    return (ring.error if ring and is_tensorflows else None) or error

"""The ring of a process: when it is formed, how forks leave it, and how it explains errors."""

import os
import traceback
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.ring.errors import Aborted
from cluster_trainer.collectives.ring.ring import Ring
from harness.rings import on_all, rings


class OpError(Exception):
    """An error with the name of TensorFlow's errors."""


class UnknownError(OpError):
    """The error that TensorFlow raises for an error within an operation."""


@pytest.fixture
def two() -> Iterator[list[Ring]]:
    """Both ranks of a ring. The first rank is the ring of this process."""
    with rings(2) as made:
        process_ring.use(made[0])
        yield made
        process_ring.use(None)


def ended(work: Callable[[], object]) -> int:
    """Run some work in a forked process, and return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- nothing of this process may go on in the child
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def sums(made: list[Ring]) -> list[float]:
    return [total[0] for total in on_all(made, lambda ring: ring.all_reduce(np.ones(3)))]


def test_a_fork_that_forgets_the_ring_leaves_it_whole(two: list[Ring]) -> None:
    sums(two)
    assert ended(lambda: [ring.forget() for ring in two]) == 0
    assert sums(two) == [2, 2]


def test_a_fork_has_nothing_open_of_a_ring_that_it_has_forgotten(two: list[Ring]) -> None:
    def forget() -> None:
        descriptors = [end.fileno() for ring in two for end in ring._sockets]  # noqa: SLF001
        for ring in two:
            ring.forget()
        for descriptor in descriptors:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)

    assert ended(forget) == 0


def test_a_forgotten_ring_is_of_no_use(two: list[Ring]) -> None:
    def call() -> None:
        two[0].forget()
        with pytest.raises(Exception, match="this ring was closed"):
            two[0].barrier()
        two[0].close()  # as at the end of the process

    assert ended(call) == 0
    assert sums(two) == [2, 2]


def test_why_the_ring_has_failed_is_told_in_place_of_tensorflows_error(two: list[Ring]) -> None:
    two[1].abort("a test")
    error = UnknownError("Aborted: aborted by rank 1")

    def step() -> None:
        with pytest.raises(Aborted):
            two[0].barrier()
        raise error

    with (
        pytest.raises(Aborted, match="aborted by rank 1: a test") as caught,
        process_ring.failure_told(),
    ):
        step()
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("my own"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_not_tensorflows_error_stays_as_it_is(
    two: list[Ring], error: BaseException
) -> None:
    two[0].abort("a test")
    with pytest.raises(type(error)) as caught, process_ring.failure_told():
        raise error
    assert caught.value is error


@pytest.mark.usefixtures("two")
def test_tensorflows_error_stays_as_it_is_while_the_ring_has_not_failed() -> None:
    error = UnknownError("indices = 7 is not in [0, 5)")
    with pytest.raises(UnknownError) as caught, process_ring.failure_told():
        raise error
    assert caught.value is error


def test_tensorflows_error_stays_as_it_is_without_a_ring() -> None:
    with pytest.raises(UnknownError), process_ring.failure_told():
        raise UnknownError


def test_a_ring_that_is_offered_is_formed_once_and_when_it_is_asked_for() -> None:
    formed = []

    def form() -> Ring:
        formed.append(Ring(0, 1, 1))
        return formed[-1]

    process_ring.offer(form)
    assert process_ring.is_wanted()
    assert not formed
    assert process_ring.current() is process_ring.current() is formed[0]
    assert len(formed) == 1
    process_ring.use(None)
    assert process_ring.current() is None
    assert not process_ring.is_wanted()


def test_where_there_are_no_others_nobody_asks_again() -> None:
    asked = []
    process_ring.offer(lambda: asked.append(1))
    assert process_ring.current() is None
    assert process_ring.current() is None
    assert asked == [1]
    assert not process_ring.is_wanted()


def test_a_ring_that_could_not_be_formed_is_asked_for_again() -> None:
    asked = []

    def form() -> Ring | None:
        asked.append(1)
        if len(asked) == 1:
            raise ConnectionError
        return None

    process_ring.offer(form)
    with pytest.raises(ConnectionError):
        process_ring.current()
    assert process_ring.is_wanted()
    assert process_ring.current() is None
    assert asked == [1, 1]

"""Sends the chief's values of variables to all workers, and makes digests of values."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.engine.replicas.step_context import tensorflow_variable
from cluster_trainer.engine.same_values.diverged import value_of
from cluster_trainer.private import tensorflow_names

CHIEF = 0
PACK_BYTES = 2**25


def give(variables: Iterable[Any], ring: RenewableRing, what: str) -> None:
    """Give variables the chief's values; all workers call this, with the same variables.

    Args:
        variables: the variables, of any models and optimizers.
        ring: the workers' ring.
        what: the purpose, to report workers that are in another call.
    """
    for pack in _packs(variables):
        content = b"".join(_bytes(_rows(*one)) for one in pack) if ring.rank == CHIEF else None
        given = ring.broadcast(content, CHIEF, what=what)
        if ring.rank != CHIEF:
            _assign(pack, given)


def digest_of(variables: Iterable[Any]) -> bytes:
    """Return a digest of the values of variables: 16 bytes."""
    return digest(_bytes(value_of(one)) for one in variables)


def digest(parts: Iterable[Any]) -> bytes:
    """Return a digest of a sequence of bytes objects, and of their lengths: 16 bytes."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8))
        found.update(part)
    return found.digest()


# A variable and some of its rows; None: all of it.
Piece: TypeAlias = tuple[Any, slice | None]


def _packs(variables: Iterable[Any]) -> Iterator[list[Piece]]:
    """Yield all variables in packs of about PACK_BYTES, which limits the memory for copies."""
    pack: list[Piece] = []
    packed = 0
    for piece in itertools.chain.from_iterable(map(_pieces, variables)):
        size = _rows(*piece).nbytes
        if pack and packed + size > PACK_BYTES:
            yield pack
            pack, packed = [], 0
        pack.append(piece)
        packed += size
    if pack:
        yield pack


def _pieces(variable: Any) -> Iterator[Piece]:
    value = value_of(variable)
    if value.nbytes <= PACK_BYTES or not value.ndim:
        yield variable, None
        return
    rows = max(1, PACK_BYTES * len(value) // value.nbytes)
    for begin in range(0, len(value), rows):
        yield variable, slice(begin, min(begin + rows, len(value)))


def _assign(pack: Iterable[Piece], content: bytes) -> None:
    begin = 0
    for variable, rows in pack:
        like = _rows(variable, rows)
        shape, dtype, size = like.shape, like.dtype, like.nbytes
        del like  # otherwise TensorFlow would copy the value before it changes it
        given = np.frombuffer(content, dtype, size // dtype.itemsize, begin).reshape(shape)
        if rows is None:
            variable.assign(given)
        else:
            for copy in tensorflow_names.copies_of(tensorflow_variable(variable)):
                copy[rows].assign(given)
        begin += size


def _rows(variable: Any, rows: slice | None) -> np.ndarray:
    value = value_of(variable)
    return value if rows is None else value[rows]


def _bytes(value: np.ndarray) -> memoryview:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data

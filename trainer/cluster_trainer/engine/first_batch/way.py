"""Holds a replica's data of one of the two ways in which the first batch is computed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

SEED = 0


class Cut(NamedTuple):
    """A replica's rows of a part of the batch.

    Attributes:
        start: the position of its first row.
        rows: the number of its rows.
        of_batch: the number of rows in the whole batch.
    """

    start: int
    rows: int
    of_batch: int


@dataclass
class Way:
    """A replica's part of the batch, and its results.

    Attributes:
        cuts: the replica's rows of the batch's parts; more than one if the parts have different
            numbers of rows.
        gradients: the gradients that each optimizer was to apply, in order.
        sizes: for each of `gradients`, the norm of this replica's own gradients before the sum.
        differing: the names of random draws that cannot be made equal in both ways.
        draws: the number of draws of `tf.random` without a seed.
        shapes: the shapes of the draws; -n stands for a first dimension of n rows for each row of
            the share.
        drawn: the draws of rank 1, by `id`.
        sums: a description of each sum over replicas that was left out.
        pythons: a replacement for the generator of the module `random`, equal in both ways.
        numpys: a replacement for the generator of `numpy.random`, equal in both ways.
    """

    cuts: Sequence[Cut]
    gradients: list[list[Any]] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    differing: set[str] = field(default_factory=set)
    draws: int = 0
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    drawn: dict[int, Any] = field(default_factory=dict)
    sums: list[str] = field(default_factory=list)
    pythons: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311
    numpys: np.random.RandomState = field(default_factory=lambda: np.random.RandomState(SEED))

    def note_gradients(self, given: Sequence[Any], over_all: Sequence[Any]) -> None:
        """Note a replica's gradients, and their sums over all replicas, which are not applied."""
        self.gradients.append([_as_array(one) for one in over_all])
        self.sizes.append(norm([_as_array(one) for one in given]))

    def next_draw(self) -> int:
        """Count a draw, and return its number, from 1 on."""
        self.draws += 1
        return self.draws

    def rows_of(self, draw: Callable[[Any], Any], shape: Any) -> Any:
        """Return this replica's rows of a draw for the whole batch.

        The first dimension of `shape` may be a multiple of the share's rows, for several blocks one
        after the other. A draw of any other shape is the same on all replicas.
        """
        sides = [int(side) for side in np.asarray(shape).reshape(-1)]
        cut = self._cut_of(sides[0]) if sides else None
        if cut is None:
            self.shapes.append(tuple(sides))
            return self._noted(draw(sides))
        blocks = sides[0] // cut.rows
        self.shapes.append((-blocks, *sides[1:]))
        whole = draw([blocks * cut.of_batch, *sides[1:]])
        by_block = tf.reshape(whole, [blocks, cut.of_batch, *sides[1:]])
        mine = by_block[:, cut.start : cut.start + cut.rows]
        return self._noted(tf.reshape(mine, sides))

    def _cut_of(self, drawn: int) -> Cut | None:
        """Return the cut of whose rows `drawn` is a multiple; None: there is none, or several.

        Several cuts make the ways incomparable, which is noted.
        """
        exact = [one for one in self.cuts if one.rows == drawn]
        found = exact or [one for one in self.cuts if one.rows and drawn % one.rows == 0]
        if len(found) > 1:
            self.differing.add("numbers for parts of different sizes")
            return None
        return found[0] if found else None

    def _noted(self, value: Any) -> Any:
        if value.shape.rank == 1:
            self.drawn[id(value)] = value
        return value


class Rows(NamedTuple):
    """A sparse gradient, in which no row occurs twice."""

    indices: np.ndarray
    values: np.ndarray


Array: TypeAlias = np.ndarray | Rows | None


def norm(values: Sequence[Array]) -> float:
    """Return the norm of several arrays together; None counts as 0."""
    numbers = [one.values if isinstance(one, Rows) else one for one in values]
    squares = [_sum_of_squares(one) for one in numbers if one is not None]
    return float(np.sqrt(sum(squares)))


def distance(one: Sequence[Array], other: Sequence[Array]) -> float:
    """Return the norm of the differences of corresponding arrays."""
    pairs = [_alike(a, b) for a, b in zip(one, other, strict=True)]
    return norm([a - b for a, b in pairs])


def _sum_of_squares(numbers: np.ndarray) -> float:
    return float(np.sum(np.square(numbers, dtype=np.float64)))


def _alike(one: Array, other: Array) -> tuple[Any, Any]:
    """Return two arrays in the same form."""
    if isinstance(one, Rows) and isinstance(other, Rows):
        indices = np.union1d(one.indices, other.indices)
        return _at(one, indices), _at(other, indices)
    if one is None or other is None:
        either = other if one is None else one
        values = either.values if isinstance(either, Rows) else either
        return (0.0 if values is None else values), 0.0
    return one, other


def _at(rows: Rows, indices: np.ndarray) -> np.ndarray:
    values = np.zeros((len(indices), *rows.values.shape[1:]), np.float64)
    values[np.searchsorted(indices, rows.indices)] = rows.values
    return values


def _as_array(gradient: Any) -> Array:
    if gradient is None:
        return None
    if not isinstance(gradient, tf.IndexedSlices):
        return np.asarray(tf.cast(gradient, tf.float32))
    indices, places = np.unique(gradient.indices.numpy(), return_inverse=True)
    values = tf.cast(gradient.values, tf.float32).numpy()
    sums = np.zeros((len(indices), *values.shape[1:]), np.float64)
    np.add.at(sums, places.reshape(-1), values)
    return Rows(indices, sums)

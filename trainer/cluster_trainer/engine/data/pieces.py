"""Counts the pieces into which a global batch can be cut.

In most programs all parts of a batch have a row for each example, and a piece is an example. There
are two other cases:

- `tf.data.Dataset.zip` joins parts that were batched separately, such as labelled and unlabelled
  rows. Each part is cut by its own rows, in the same proportions, so that one weight fits the
  share.
- Any other batch whose parts have different numbers of rows, such as several graphs merged into
  one, cannot be cut. It is one piece, which every replica computes and which counts once.

Both give the result of one device.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

log = logging.getLogger("trainer")
_said: list[bool] = []


@dataclass(frozen=True)
class Component:
    """Parts of a batch that were batched together, and separately from the others.

    Attributes:
        parts: the number of parts; None: all.
        batch_size: the largest number of rows that they can have; None: unknown.
    """

    parts: int | None = None
    batch_size: int | None = None


TOGETHER = (Component(),)


def has_rows(leaf: Any) -> bool:
    """Tell whether a part of a batch has rows, and not one value for the whole batch."""
    return leaf is not None and leaf.shape.rank != 0


def rows_of(leaf: Any) -> Any:
    """Return the number of a part's rows: an integer if it is known, else a tensor, int64 []."""
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows(out_type=tf.int64)
    known = leaf.shape[0] if leaf.shape.rank else None
    return tf.shape(leaf, out_type=tf.int64)[0] if known is None else known


def fewest_pieces(shapes: Sequence[tf.TensorShape], components: Sequence[Component]) -> int:
    """Return the smallest possible number of pieces of a batch."""
    with_rows = [shape for shape in shapes if shape.rank != 0]
    known = {int(shape[0]) for shape in with_rows if shape.rank and shape[0] is not None}
    are_known = all(shape.rank and shape[0] is not None for shape in with_rows)
    are_cut = len(known) == 1 or len(components) > 1
    return math.gcd(*known) if known and are_known and are_cut else 1


class Pieces:
    """The pieces of one batch, which is divided among `replicas`.

    Attributes:
        count: the number of pieces: an integer if it is known, else a tensor, int64 [].
        may_be_one: whether all replicas may have to compute the whole batch.
    """

    def __init__(
        self, leaves: Sequence[Any], components: Sequence[Component], replicas: int
    ) -> None:
        self._components = [*_rows_by_component(leaves, components)]
        self._rows = [one for rows, _ in self._components for one in rows]
        are_alike = len(self._rows) < 2 or _is_one_number(self._rows)  # noqa: PLR2004
        self.may_be_one = not are_alike
        self.count: Any = 1
        if are_alike and self._rows:
            self.count = self._rows[0]
        elif not are_alike:
            self.count = self._known() if all(map(_is_known, self._rows)) else self._counted()
            self._say_if_whole(replicas)

    def of_a_part(self, rows: Any) -> Any:
        """Return how many of a part's `rows` are in each piece."""
        return rows // max(self.count, 1) if _is_known(self.count) else rows // self.count

    def _known(self) -> int:
        can_be_cut = all(map(bool, self._conditions()))
        return max(math.gcd(*self._rows), 1) if can_be_cut else 1

    def _counted(self) -> tf.Tensor:
        can_be_cut = tf.reduce_all([tf.convert_to_tensor(one) for one in self._conditions()])
        divisor = tf.foldl(tf.experimental.numpy.gcd, self._stacked())
        return tf.where(can_be_cut, tf.maximum(divisor, 1), 1)

    def _conditions(self) -> list[Any]:
        """Return the conditions for cutting the batch, bools: each component is consistent."""
        found: list[Any] = [True]
        for rows, batch_size in self._components:
            found += [one == rows[0] for one in rows[1:]]
            if rows and batch_size is not None:
                found.append(rows[0] <= batch_size)
        return found

    def _say_if_whole(self, replicas: int) -> None:
        rows = self._stacked()
        fewest = tf.minimum(tf.reduce_min(rows), replicas)
        tf.cond(
            self.count < fewest,
            lambda: tf.numpy_function(say_of_whole, [rows], tf.int64),
            lambda: tf.constant(0, tf.int64),
        )

    def _stacked(self) -> tf.Tensor:
        return tf.stack([tf.cast(one, tf.int64) for one in self._rows])


def _rows_by_component(
    leaves: Sequence[Any], components: Sequence[Component]
) -> Sequence[tuple[list[Any], int | None]]:
    """Return the numbers of rows of each component's parts, and its batch size."""
    found, left = [], list(leaves)
    for component in components:
        parts = len(left) if component.parts is None else component.parts
        mine, left = left[:parts], left[parts:]
        found.append(([rows_of(one) for one in mine if has_rows(one)], component.batch_size))
    return found


def _is_known(rows: Any) -> bool:
    return isinstance(rows, int)


def _is_one_number(rows: Sequence[Any]) -> bool:
    return all(map(_is_known, rows)) and len({*rows}) == 1


def say_of_whole(rows: np.ndarray) -> np.int64:
    """Warn that every replica computes the whole batch, whose parts have these rows; return 0."""
    if not _said:  # once in a process
        _said.append(True)
        log.warning(
            "the parts of a batch have %s rows and cannot be divided in equal proportions: every "
            "replica computes the whole batch, which counts once. The results are those of one "
            "device, but several workers are no faster. If the rows are independent, such as "
            "labelled and unlabelled ones, `batch` each part, in sizes with a common factor, and "
            "call `tf.data.Dataset.zip` last, without a `map` after it. Keep data that belong to "
            "all examples, such as a table or one large graph, in the model.",
            ", ".join(map(str, rows)),
        )
    return np.int64(0)

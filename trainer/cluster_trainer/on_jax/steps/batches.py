"""The global batches of a fit, in an order that depends only on its seed and the pass.

Each worker reads every global batch, and `step.py` divides it. Arrays and PyDatasets with a length
are shuffled by seed and pass. A generator determines its batches itself. A fit that resumes reads
its earlier batches again, so that a source with its own random state gets to the same place. The
checkpoint holds a digest of the batches, which shows whether they are the same.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np

from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import ConfigurationError, Problem

DIGESTED_BYTES = 2**30
"""In an array of more bytes than this, only rows at equal distances are compared."""

NO_NUMBERS = "OUSMm"
"""NumPy's kinds of objects, texts and times. JAX's bfloat16 is of the kind V."""


def order_of(seed: int, number: int, size: int) -> np.ndarray:
    """Return the order of `size` examples in pass `number`, from 0."""
    key = np.array([seed & 2**64 - 1, number], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(size)


class GlobalBatches(keras_jax_names.DataAdapter):
    """The data adapter from which Keras reads a fit's batches, in place of its own.

    Args:
        adapter: Keras's own adapter of arrays, of a PyDataset, or of a generator.
        seed: the seed of the order.

    Attributes:
        passes: the number of passes that have begun.
        digest: the digest of all batches so far, unless the data are arrays.
        is_skipped: whether batches of arrays are only counted.
        iterator: the iterator that reads from this adapter.
    """

    def __init__(self, adapter: Any, seed: int) -> None:
        self._adapter, self._seed = adapter, seed
        self.passes = self.digest = 0
        self.is_skipped = False
        self.iterator: EpochIterator | None = None

    @property
    def num_batches(self) -> int | None:
        """The number of batches in a pass; None: unknown."""
        number: int | None = self._adapter.num_batches
        return number

    @property
    def batch_size(self) -> int | None:
        """The batch size, according to Keras's own adapter."""
        size: int | None = self._adapter.batch_size
        return size

    @property
    def described(self) -> dict[str, str]:
        """The facts that must be the same on all workers and at a resume: name -> value."""
        if not isinstance(self._adapter, keras_jax_names.ArrayDataAdapter):
            return {"the data": f"{type(self._adapter).__name__}, {self.num_batches} batches"}
        examples, size = keras_jax_names.size_of(self._adapter)
        leaves = self._leaves()
        shapes = [f"{one.dtype}{list(one.shape)}" for one in leaves]
        digest = 0
        for one in leaves:
            step = max(1, one.nbytes // DIGESTED_BYTES)
            digest = zlib.crc32(one[::step].tobytes(), digest)
        return {
            "the arrays": ", ".join(shapes),
            "CRC-32 of the arrays": f"{digest:08x}",
            "the batch size": str(size),
            "the order of the data": str(self._seed if self._shuffles else "as given"),
            "the examples": str(examples),
        }

    @property
    def _shuffles(self) -> bool:
        return keras_jax_names.shuffles(self._adapter)

    def _leaves(self) -> list[np.ndarray]:
        every = slice(None)
        return [
            np.asarray(one.convert_to_jax_compatible(one[every]))
            for one in keras.tree.flatten(keras_jax_names.sliceable(self._adapter))
            if one is not None
        ]

    def get_jax_iterator(self) -> Iterator[Any]:
        """Begin another pass."""
        number, self.passes = self.passes, self.passes + 1
        if isinstance(self._adapter, keras_jax_names.ArrayDataAdapter):
            return self._of_arrays(number)
        return self._digested(self._of_users(number))

    def on_epoch_begin(self) -> None:
        """Call the hook of Keras's own adapter."""
        self._adapter.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Call the hook of Keras's own adapter."""
        self._adapter.on_epoch_end()

    def _of_arrays(self, number: int) -> Iterator[Any]:
        examples, size = keras_jax_names.size_of(self._adapter)
        parts = keras_jax_names.sliceable(self._adapter)
        rows = order_of(self._seed, number, examples) if self._shuffles else np.arange(examples)
        for first in range(0, examples, size):
            taken = rows[first : first + size]
            yield (
                None
                if self.is_skipped
                else keras.tree.map_structure(
                    lambda part, taken=taken: _taken(part, taken), parts, none_is_leaf=False
                )
            )

    def _of_users(self, number: int) -> Iterator[Any]:
        if not isinstance(self._adapter, keras_jax_names.PyDatasetAdapter):
            yield from self._adapter.generator()
            return
        data, size = self._adapter.py_dataset, self.num_batches
        indices: Any = range(size) if size is not None else _all_numbers()
        if size is not None and self._adapter.shuffle:
            indices = order_of(self._seed, number, size).tolist()
        for index in indices:
            yield keras_jax_names.standardized(self._adapter, data[index])

    def _digested(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            arrays = keras.tree.map_structure(_as_array, batch, none_is_leaf=False)
            self.digest = digest_of(arrays, self.digest)
            yield arrays


def digest_of(batch: Any, before: int = 0) -> int:
    """Return a digest of a batch of NumPy arrays, combined with the digest `before`."""
    for leaf in keras.tree.flatten(batch):
        if leaf is not None:
            # NumPy gives no buffer of JAX's own dtypes, such as bfloat16.
            content = np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
            before = zlib.crc32(content.data, before)
            before = zlib.crc32(f"{leaf.dtype}{leaf.shape}".encode(), before)
    return before


def _taken(part: Any, rows: np.ndarray) -> np.ndarray:
    return _as_array(part.convert_to_jax_compatible(part[rows]))


def _as_array(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind in NO_NUMBERS:
        accepted = "arrays of numbers"
        raise ConfigurationError([Problem("the data", type(leaf).__name__, accepted)])
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def _all_numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


class EpochIterator(keras_jax_names.JAXEpochIterator):
    """Keras's own iterator, which can also begin where an earlier start of a fit was."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._begun: Any = None
        if isinstance(self.data_adapter, GlobalBatches):
            self.data_adapter.iterator = self

    def reset(self) -> None:
        """Begin with the first pass."""
        super().reset()
        if isinstance(self.data_adapter, GlobalBatches):
            self.data_adapter.passes = self.data_adapter.digest = 0

    def _get_iterator(self) -> Iterator[Any]:
        # On GPUs, Keras reads one batch ahead. A checkpoint would have counted it as trained.
        if isinstance(self.data_adapter, GlobalBatches):
            return self.data_adapter.get_jax_iterator()
        return keras_jax_names.begun(self)

    def __iter__(self) -> "EpochIterator":
        if self._begun is None:
            super().__iter__()
        else:
            self._epoch_iterator, self._begun = self._begun, None
        return self

    def read_again(self, epochs: int, steps: int) -> None:
        """Read the batches of some epochs, and of some steps of the next epoch.

        Args:
            epochs: the number of whole epochs.
            steps: the number of steps of the next epoch.

        Raises:
            ConfigurationError: the epoch has fewer steps.
        """
        self.data_adapter.is_skipped = True
        for _ in range(epochs):
            with self.catch_stop_iteration():
                for _, _, iterator in self:
                    next(iterator)
        if steps:
            iter(self)
            for done in range(steps):
                try:
                    next(next(self)[2])
                except StopIteration:
                    raise _fewer(done, steps) from None
            self._begun = self._epoch_iterator
        self.data_adapter.is_skipped = False

    def pass_by(self, passes: int) -> None:
        """Read some passes, as this number of calls of `evaluate` with the iterator would."""
        if isinstance(self.data_adapter, keras_jax_names.ArrayDataAdapter):
            return
        for _ in range(passes):
            with self.catch_stop_iteration():
                for _, _, iterator in self:
                    next(iterator)
            self.reset()


def _fewer(received: int, accepted: int) -> ConfigurationError:
    problem = Problem("the steps of the epoch", str(received), f"{accepted} or more, as before")
    return ConfigurationError([problem])

"""Reads Keras's PyDatasets, whose batches a user's code makes."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.same_data import of_batch
from cluster_trainer.engine.data.sources.source import WholeBatchSource
from cluster_trainer.private import keras_names


def stays_as_it_is(dataset: keras.utils.PyDataset) -> bool:
    """Tell whether a dataset has no hooks of its own for the beginning and the end of an epoch.

    The batches of a dataset with such hooks may depend on earlier epochs.
    """
    kind = type(dataset)
    return all(
        getattr(kind, name) is getattr(keras.utils.PyDataset, name)
        for name in ("on_epoch_begin", "on_epoch_end")
    )


class PyDatasetSource(WholeBatchSource):
    """The batches of a PyDataset. If they are shuffled, the order depends on seed and pass only."""

    is_ours = asks_users = True

    def __init__(
        self, adapter: keras_names.PyDatasetAdapter, replicas: Replicas, seed: int
    ) -> None:
        self._reading: keras_names.PyDatasetAdapter | None = None
        super().__init__(adapter.num_batches, replicas)
        self._adapter, self._seed = adapter, seed
        self.is_infinite = adapter.num_batches is None
        self.begins_again = stays_as_it_is(adapter.py_dataset)
        self.changes = not self.begins_again
        self._signature: Any = None

    def found(self) -> dict[str, str]:
        """Return digests of the first batch; see Source.found."""
        return {} if self.num_batches == 0 else of_batch(self._adapter.py_dataset[0])

    def begin_epoch(self) -> None:
        """Tell the dataset that an epoch begins."""
        self._adapter.py_dataset.on_epoch_begin()

    def end_epoch(self) -> None:
        """Tell the dataset that an epoch has ended."""
        self._adapter.py_dataset.on_epoch_end()

    def begin_pass(self, number: int) -> None:  # noqa: ARG002  `shares` has got the number
        """Begin to read ahead."""
        if self._reading and self._reading.enqueuer:
            self._reading.enqueuer.start()

    def end_pass(self) -> None:
        """Stop reading ahead."""
        reading, self._reading = self._reading, None
        if reading and reading.enqueuer:
            reading.enqueuer.stop()  # may raise an error of a user's code

    def __del__(self) -> None:
        """Stop reading ahead, perhaps in the middle of a pass."""
        self.end_pass()

    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:
        self.end_pass()
        ordered = _InOrder(self._adapter.py_dataset, self._order(pass_number), first)
        reading = keras_names.PyDatasetAdapter(ordered, class_weight=self._adapter.class_weight)
        keras_names.set_signature(reading, self._signature)  # otherwise it reads two more batches
        dataset = reading.get_tf_dataset()
        self._signature = keras_names.signature_of(reading)
        self._reading = reading
        return dataset

    def _order(self, pass_number: int) -> np.ndarray | None:
        if not (self._adapter.shuffle and self.num_batches):
            return None
        return np.random.default_rng([self._seed, pass_number]).permutation(self.num_batches)


class _InOrder(keras.utils.PyDataset):
    """A PyDataset from batch `first` on, in another order; None: in its own order."""

    def __init__(self, inner: keras.utils.PyDataset, order: np.ndarray | None, first: int) -> None:
        super().__init__(
            workers=inner.workers,
            use_multiprocessing=inner.use_multiprocessing,
            max_queue_size=inner.max_queue_size,
        )
        self._inner, self._order, self._first = inner, order, first

    @property
    def num_batches(self) -> int | None:
        """The number of remaining batches."""
        known = self._inner.num_batches
        return None if known is None else known - self._first

    def __getitem__(self, index: int) -> Any:
        """Return the remaining batch number `index`, from 0."""
        place = self._first + index
        return self._inner[place if self._order is None else int(self._order[place])]

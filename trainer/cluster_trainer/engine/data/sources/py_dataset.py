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
    """The batches of a PyDataset. If they are shuffled, the order depends on seed and pass only.

    A PyDataset may draw its batches from a random generator of its own, or count its readings. So
    any number of workers reads as many batches, in the same order: the workers compare batches that
    Keras reads as well, or that the steps use afterwards.
    """

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
        self._found: dict[str, str] = {}
        self._compared = 0

    def look(self) -> None:
        """Read the batches that Keras reads to find their specification, and note the first."""
        if self._signature is None and self.num_batches != 0:
            self._look_at(self._reader(0, 0))

    def look_ahead(self) -> None:
        """Read and note the first batch of the pass, which is then the first one that is used."""
        ordered = self._reading.py_dataset if self._reading else None
        if ordered is not None and ordered.num_batches != 0:
            self._note(ordered)

    def _look_at(self, reader: keras_names.PyDatasetAdapter) -> None:
        self._note(reader.py_dataset)
        reader.get_tf_dataset()
        self._signature = keras_names.signature_of(reader)

    def _note(self, ordered: "_InOrder") -> None:
        self._found, self._compared = of_batch(ordered.read_ahead()), ordered.place(0)

    def found(self) -> dict[str, str]:
        """Return digests of the batch that was noted last; see Source.found."""
        self.look()
        return self._found

    def found_anew(self) -> dict[str, str]:
        """Read that batch again; see Source.found_anew."""
        return of_batch(self._adapter.py_dataset[self._compared]) if self._found else {}

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
        self.look()
        self._reading = self._reader(pass_number, first)
        keras_names.set_signature(self._reading, self._signature)
        return self._reading.get_tf_dataset()

    def _reader(self, pass_number: int, first: int) -> keras_names.PyDatasetAdapter:
        """Return an adapter that reads a pass from batch `first` on."""
        ordered = _InOrder(self._adapter.py_dataset, self._order(pass_number), first)
        return keras_names.PyDatasetAdapter(ordered, class_weight=self._adapter.class_weight)

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
        self._ahead: list[Any] = []

    @property
    def num_batches(self) -> int | None:
        """The number of remaining batches."""
        known = self._inner.num_batches
        return None if known is None else known - self._first

    def __getitem__(self, index: int) -> Any:
        """Return the remaining batch number `index`, from 0."""
        if index == 0 and self._ahead:
            return self._ahead.pop()
        return self._inner[self.place(index)]

    def place(self, index: int) -> int:
        """Return the place of remaining batch number `index` in the PyDataset."""
        place = self._first + index
        return place if self._order is None else int(self._order[place])

    def read_ahead(self) -> Any:
        """Read the first batch, and keep it for whoever asks for it next."""
        self._ahead = [self[0]]
        return self._ahead[0]

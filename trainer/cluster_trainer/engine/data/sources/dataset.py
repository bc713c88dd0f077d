"""Reads tf.data pipelines and generators, which give batches in their own order."""

import logging
from functools import cached_property
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data import pipelines
from cluster_trainer.engine.data.again import Again
from cluster_trainer.engine.data.pieces import fewest_pieces
from cluster_trainer.engine.data.same_data import of_batch
from cluster_trainer.engine.data.sharding.advice import advice_on
from cluster_trainer.engine.data.sharding.plan import Plan, plan_of
from cluster_trainer.engine.data.sharding.rebuilt import OwnRows, rows_of_shares
from cluster_trainer.engine.data.sources.source import (
    Source,
    WholeBatchSource,
    as_written,
    threads,
)
from cluster_trainer.private import keras_names

log = logging.getLogger("trainer")


class DatasetSource(WholeBatchSource):
    """Data that Keras turns into a tf.data.Dataset.

    Each worker reads all data. If possible, it runs the costly steps of a pipeline for its own rows
    only; see sharding/plan.py.
    """

    reads_from_the_first = True
    doubtful = (pipelines.DRAWS,)  # a pipeline may augment its examples with random numbers

    def __init__(self, adapter: Any, replicas: Replicas) -> None:
        super().__init__(adapter.num_batches, replicas)
        self._adapter, self._begun = adapter, 0
        self._dataset = keras_names.dataset_of(adapter)
        self.calls_users = pipelines.calls_python(self._dataset)
        for warning in pipelines.warnings(self._dataset) if replicas.workers > 1 else ():
            log.warning(warning)
        self.is_infinite = int(self._dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
        shapes = pipelines.shapes(self._dataset)
        if isinstance(adapter, keras_names.TFDatasetAdapter):
            self.components = pipelines.components(self._dataset)
        self.varies = not all(shape.is_fully_defined() for shape in shapes)
        self.may_lack_examples = replicas.may_exceed(fewest_pieces(shapes, self.components))

    @property
    def advice(self) -> str:
        """The reason why a costly step runs for all rows, and advice; see Source.advice."""
        return advice_on(self._plan)

    @property
    def described(self) -> dict[str, str]:
        """A digest of some rows that a user's pipeline was made from, and its constants."""
        is_users = isinstance(self._adapter, keras_names.TFDatasetAdapter)
        if not is_users:
            return {}
        return pipelines.of_rows(self._dataset) | pipelines.of_numbers(self._dataset)

    def found(self) -> dict[str, str]:
        """Return facts about the pipeline, or digests of a generator's or a loader's batches."""
        # They were read to inspect them.
        first = keras_names.first_batches(self._adapter)
        return pipelines.facts(self._dataset) if first is None else of_batch(first)

    def again(self, pass_number: int, first: int, steps: int) -> Again | None:
        """See Source.again; the batches of a generator or a loader are gone."""
        if keras_names.first_batches(self._adapter) is not None:
            return None
        return super().again(pass_number, first, steps)

    def begin_pass(self, number: int) -> None:
        """Begin the passes before `number` that this process has not begun; see `catch_up`."""
        self.catch_up(number)
        self._begun = number + 1

    def catch_up(self, passes: int) -> None:
        """Begin the passes that have not begun in this process; see Source.catch_up.

        A `Dataset.shuffle` draws another order for each iterator, and so does a torch DataLoader.
        So the next iterator gets the order that it would have had without a restart.
        """
        loader = keras_names.torch_loader_of(self._adapter)
        if loader is not None and passes > self._begun and not keras_names.is_in_order(loader):
            pipelines.repeat(passes - self._begun, "begun", lambda: next(iter(loader), None))
        if isinstance(self._adapter, keras_names.TFDatasetAdapter):
            pipelines.warn_of_ended(self._dataset)
            pipelines.begin(self._dataset, passes - self._begun)
        self._begun = max(self._begun, passes)

    def note_ended(self) -> None:
        """Note a shuffle that no iterator begins in this process; see Source.note_ended."""
        if isinstance(self._adapter, keras_names.TFDatasetAdapter):
            pipelines.note_ended(self._dataset)

    def begin_epoch(self) -> None:
        """Tell Keras's adapter that an epoch begins."""
        self._adapter.on_epoch_begin()

    def end_epoch(self) -> None:
        """Tell Keras's adapter that an epoch has ended."""
        self._adapter.on_epoch_end()

    def shares(self, pass_number: int, first: int) -> Any:
        """Return the batches' shares; see Source.shares."""
        if self.replicas.workers == 1 or self.own_rows is None:
            return super().shares(pass_number, first)
        own = self.own_rows
        rows = own.rows.skip(first) if first else own.rows
        share_out = as_written(own.shares)
        shared = rows.map(share_out, num_parallel_calls=threads(), deterministic=True)
        return shared.with_options(self._dataset.options()).prefetch(2)

    @cached_property
    def _plan(self) -> Plan:
        is_users = isinstance(self._adapter, keras_names.TFDatasetAdapter)
        return plan_of(self._dataset) if is_users else Plan(self._dataset)

    @cached_property
    def own_rows(self) -> OwnRows | None:
        """The pipeline for the rows of this worker's shares; None: the worker prepares all rows."""
        rows = rows_of_shares(self._plan, self.replicas) if self._plan.on_rows else None
        if rows is None:
            return None
        return OwnRows(rows, self.replicas, super().shares(0, 0).element_spec)

    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:  # noqa: ARG002  the order is the data's
        return self._dataset.skip(first) if first else self._dataset


class DistributedSource(Source):
    """Data that a user lets TensorFlow divide, for example by files."""

    is_distributed = True
    begins_anywhere = False

    def __init__(
        self,
        adapter: keras_names.TFDatasetAdapter,
        replicas: Replicas,
        strategy: tf.distribute.Strategy,
    ) -> None:
        super().__init__(adapter.num_batches, replicas)
        dataset = adapter.get_tf_dataset()
        if replicas.total > 1 and not isinstance(dataset, tf.distribute.DistributedDataset):
            dataset = strategy.experimental_distribute_dataset(dataset)
        self._dataset = dataset
        self.is_distributed = replicas.total > 1

    def shares(self, pass_number: int, first: int) -> Any:  # noqa: ARG002  the order is TensorFlow's
        """Return the distributed dataset."""
        return self._dataset

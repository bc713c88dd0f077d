"""Private names of Keras on JAX and of JAX, each with the reason why it is needed.

As read in Keras 3.15.1 and JAX 0.10.2.
"""

from collections.abc import Iterator
from typing import Any

# JAX's client of its coordinator, which has heartbeats and takes small messages.
from jax._src.distributed import global_state

# The module in which `fit` looks up the iterator of batches, and the class that has `fit`.
from keras.src.backend.jax import trainer as jax_trainer
from keras.src.backend.jax.trainer import JAXEpochIterator, JAXTrainer

# `set_distribution`, which `scope` of a distribution calls as well.
from keras.src.distribution import distribution_lib

# Every optimizer's method `apply`, which a script's own loop calls.
from keras.src.optimizers.base_optimizer import BaseOptimizer

# Keras's choice of a reader of data, and the readers, which determine the batches.
from keras.src.trainers.data_adapters import get_data_adapter
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

# Keras's conversion of arrays before it cuts batches from them, and `validation_split`.
from keras.src.trainers.data_adapters.array_slicing import (
    convert_to_sliceable,
    train_validation_split,
)
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

STATE = "_jax_state"
"""The attribute of a model that has its values while they are not in its variables."""
VALIDATION = "_eval_epoch_iterator"
"""The attribute of a model in which `fit` keeps the batches of its validations until its end."""


def use_iterator(kind: type) -> None:
    """Let `fit` and `evaluate` read batches through another class of iterators."""
    jax_trainer.JAXEpochIterator = kind


def begun(iterator: JAXEpochIterator) -> Iterator[Any]:
    """Begin a pass over an iterator's batches as Keras does; on GPUs it reads one batch ahead."""
    batches: Iterator[Any] = JAXEpochIterator._get_iterator(iterator)
    return batches


def sliceable(adapter: Any) -> Any:
    """Return an adapter's arrays, with Keras's own casts, in a form whose rows can be picked."""
    return convert_to_sliceable(adapter._inputs, target_backend="jax")


def assert_compiled(model: Any, call: str) -> None:
    """Refuse a call of a model that is not compiled, as Keras does."""
    model._assert_compile_called(call)


def layers_of(model: Any) -> list[Any]:
    """Return a model and all layers within it, in Keras's order."""
    return list(model._flatten_layers())


def size_of(adapter: Any) -> tuple[int, int]:
    """Return the number of examples of an adapter of arrays, and its batch size."""
    return adapter._num_samples, adapter._batch_size


def shuffles(adapter: Any) -> bool:
    """Tell whether an adapter of arrays shuffles them; "batch" shuffles within a batch only."""
    return bool(adapter._shuffle) and adapter._shuffle != "batch"


def standardized(adapter: Any, batch: Any) -> Any:
    """Return a PyDataset's batch as Keras passes it on, with class weights."""
    return adapter._standardize_batch(batch)

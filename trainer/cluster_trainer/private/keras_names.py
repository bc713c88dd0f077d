"""Keras's private names, as read in Keras 3.15.1, each with the reason why it is needed.

Public names are not here: other modules import them from `keras`. Another version of Keras may lack
some of these names. In that case `tests/inside/test_private_names.py` fails with a list of them. It
has an example for each name, which also shows that the name still has the expected effect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import keras

# Computes the shapes of outputs without numbers, to build a model before its first step.
from keras.src.backend import compute_output_spec

# The process's seed generator, which a checkpoint saves; there is no public access to it.
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
from keras.src.backend.common.variables import Variable as _AnyVariable
from keras.src.backend.tensorflow import nn as _nn
from keras.src.backend.tensorflow import trainer as _trainer
from keras.src.backend.tensorflow.core import Variable as _TensorFlowVariable

# Takes pandas' frames and sparse arrays, unlike `tf.convert_to_tensor`.
from keras.src.backend.tensorflow.core import convert_to_tensor
from keras.src.backend.tensorflow.optimizer import TFOptimizer as _TFOptimizer

# Joins the predictions of several batches, ragged ones too.
from keras.src.backend.tensorflow.trainer import concat

# The layers whose `build` creates no variable: `add`, `multiply` and the like.
from keras.src.layers.merging.base_merge import Merge
from keras.src.losses import loss as _loss
from keras.src.losses import losses as _losses

# Brings masks and weights to the same rank, as Keras's losses do.
from keras.src.losses.loss import squeeze_or_expand_to_same_rank

# The base class of every backend's optimizer: it recognises any optimizer in a user's object.
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator
from keras.src.trainers import data_adapters as _data_adapters

# Recognise loaders that have lengths and items, like our sources of single examples, but that Keras
# itself reads.
from keras.src.trainers.data_adapters import is_grain_dataset, is_torch_dataloader

# Adapters of data: Keras's choice of an adapter decides how the data are divided.
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays

# Keras's conversion of arrays before it cuts batches from them.
from keras.src.trainers.data_adapters.array_slicing import (
    TensorflowSparseWrapper,
    can_slice_array,
    convert_to_sliceable,
    slice_tensorflow_sparse_wrapper,
)

# The number of batches that Keras reads from a generator to inspect them.
from keras.src.trainers.data_adapters.data_adapter_utils import NUM_BATCHES_FOR_TENSOR_SPEC
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.grain_dataset_adapter import GrainDatasetAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

# Adds class weights to batches, for each example by its class.
from keras.src.trainers.data_adapters.tf_dataset_adapter import (
    TFDatasetAdapter,
    make_class_weight_map_fn,
)
from keras.src.trainers.data_adapters.torch_data_loader_adapter import TorchDataLoaderAdapter

# Replaced by our iterator; `fit` uses its private attributes.
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.trainers.trainer import Trainer as _Trainer

# The seed of `keras.utils.set_random_seed`.
from keras.src.utils.rng_utils import get_random_seed

from cluster_trainer.private.any_backend import SET_BY_KERAS, STATE_OF_CALLBACKS
from cluster_trainer.private.replaceable import Replaceable

# Classes whose methods are replaced, and with which a model's own methods are compared.

TensorFlowTrainer = _trainer.TensorFlowTrainer
TFEpochIterator = _trainer.TFEpochIterator

# Replaced names; engine/install.py shows the replacements.

EPOCH_ITERATOR = Replaceable(_trainer, "TFEpochIterator")
MAYBE_BUILD = Replaceable(keras.Layer, "_maybe_build")
MAYBE_SYMBOLIC_BUILD = Replaceable(TensorFlowTrainer, "_maybe_symbolic_build")
METRICS_RESULT_OR_LOGS = Replaceable(TensorFlowTrainer, "_get_metrics_result_or_logs")
COMPILE = Replaceable(_Trainer, "compile")
AGGREGATE_ADDITIONAL_LOSS = Replaceable(_Trainer, "_aggregate_additional_loss")
REDUCE_VALUES = Replaceable(_loss, "reduce_values")
APPLY_MASK = Replaceable(_loss, "apply_mask")
HINGE_LABELS = Replaceable(_losses, "convert_binary_labels_to_hinge")
COMPUTE_MOMENTS_SYNC = Replaceable(_nn, "_compute_moments_sync")
MOMENTS = Replaceable(keras.layers.BatchNormalization, "_moments")
UPDATE_STEP = Replaceable(_TFOptimizer, "_backend_update_step")
APPLY_WEIGHT_DECAY = Replaceable(_TFOptimizer, "_apply_weight_decay")
INCREMENT_ACCUMULATORS = Replaceable(_TFOptimizer, "_backend_increment_gradient_accumulators")
OVERWRITE_WITH_AVERAGE = Replaceable(_TFOptimizer, "_overwrite_model_variables_with_average_value")
LOSS_SCALE_APPLY = Replaceable(keras.optimizers.LossScaleOptimizer, "_tf_apply")
LOSS_SCALE_COMMON_APPLY = Replaceable(keras.optimizers.LossScaleOptimizer, "_common_apply")
VALUE, ASSIGN = Replaceable(_AnyVariable, "value"), Replaceable(_AnyVariable, "assign")
DIRECT_ASSIGN = Replaceable(_TensorFlowVariable, "_direct_assign")
GET_DATA_ADAPTER = Replaceable(_data_adapters, "get_data_adapter")
UPDATE_PROGBAR = Replaceable(keras.callbacks.ProgbarLogger, "_update_progbar")

ITERATOR_OF_VALIDATION = "_eval_epoch_iterator"
"""The attribute of a model in which `fit` keeps the batches of its validations until its end."""
IS_VALIDATION_OF_FIT = "_use_cached_eval_dataset"
"""The argument with which only `fit` itself calls `evaluate`."""


# Models and layers.

own_trainable = attrgetter("_trainable_variables")
"""The variables that a layer itself has created as trainable, frozen or not."""
own_non_trainable = attrgetter("_non_trainable_variables")
"""The variables that a layer itself has created as not trainable, such as statistics."""
own_metrics = attrgetter("_metrics")
"""The metrics that a layer holds. `model.metrics` may omit some."""
seed_generators = attrgetter("_seed_generators")
"""The source of a layer's random numbers. Its state is not among `model.weights`."""
tracker = attrgetter("_tracker")
"""The object that holds a layer's tracked parts, used to undo a failed `build`."""
call_takes_training = attrgetter("_call_has_training_arg")
"""Whether a layer's `call` takes `training`."""
reduction_axes = attrgetter("_reduction_axes")
"""The axes over which BatchNormalization averages."""
strategy_given = attrgetter("_distribute_strategy")
"""The strategy in whose scope a model was made; None outside of a scope."""
made_by = attrgetter("_keras_history.operation")
"""The operation that a symbolic tensor comes from."""


def give_strategy(model: Any, strategy: Any) -> None:
    """Set the strategy under which a model trains; None: the current one, if any."""
    model._distribute_strategy = strategy


def layers_within(layer: Any, *, include_self: bool = True) -> list[Any]:
    """Return a layer or model with all nested layers. `layers` has one level only."""
    return [*layer._flatten_layers(include_self=include_self)]


def compiled_loss(model: Any) -> Any:
    """Return the object that computes a model's loss; None if it was compiled without one."""
    return getattr(model, "_compile_loss", None)


def compiled_metrics(model: Any) -> Any:
    """Return the object with the metrics that a model was compiled with; None without any."""
    return getattr(model, "_compile_metrics", None)


def compile_config(model: Any) -> Any:
    """Return the arguments that a model was compiled with, a new object for each `compile`."""
    return getattr(model, "_compile_config", None)


def user_losses(model: Any) -> Any:
    """Return the losses as given to `compile`; None without any."""
    return getattr(compiled_loss(model), "_user_loss", None)


def options_of_loss(loss: Any) -> dict[str, Any]:
    """Return the arguments that a loss or a metric of Keras passes to its function."""
    return {**getattr(loss, "_fn_kwargs", {})}


def user_metrics(model: Any) -> list[Any]:
    """Return the metrics as given to `compile`."""
    compiled = getattr(model, "_compile_metrics", None)
    names = "_user_metrics", "_user_weighted_metrics"
    return [*keras.tree.flatten([getattr(compiled, name, None) or [] for name in names])]


def function_of_metric(metric: Any) -> Any:
    """Return the function that a metric averages; the metric itself if it has none."""
    return getattr(metric, "_fn", metric)


def compute_loss(model: Any, *arguments: Any, **keywords: Any) -> Any:
    """Compute a loss like the model's `train_step`, without arguments that its signature lacks."""
    return model._compute_loss(*arguments, **keywords)


def symbolic_build(model: Any, batch: Any) -> None:
    """Build a compiled model as Keras does in a strategy's scope."""
    model._symbolic_build(data_batch=batch)


def with_optionals(model: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a step so that an Optional, which stands for None in a dataset, is None again."""
    converted: Callable[..., Any] = model._autoconvert_optionals(step)
    return converted


def is_validated_after(model: Any, epoch: int, frequency: Any) -> bool:
    """Tell whether `fit` validates after an epoch."""
    return bool(model._should_eval(epoch, frequency))


# Optimizers and variables.

step_counter = attrgetter("_iterations")
"""The variable that counts an optimizer's steps."""


def counter_if_made(optimizer: Any) -> Any:
    """Return TensorFlow's variable that counts an optimizer's steps; None before it is made."""
    return getattr(vars(optimizer).get("_iterations"), "_value", None)


averages_of = attrgetter("_model_variables_moving_average")
"""The moving averages of the variables that an optimizer with `use_ema` trains."""
value_of = attrgetter("_value")
"""TensorFlow's variable within Keras's; None before it is initialised."""


def set_value(variable: Any, value: Any) -> None:
    """Replace TensorFlow's variable within Keras's."""
    variable._value = value


def let_optimizers_see(strategy_seen: Callable[[Any, Any], Any]) -> None:
    """Make optimizers see `strategy_seen(optimizer, strategy)` in place of their own strategy."""
    name = "_distribution_strategy"

    def see(optimizer: Any) -> Any:
        if name not in vars(optimizer):
            raise AttributeError(name)
        return strategy_seen(optimizer, vars(optimizer)[name])

    def note(optimizer: Any, strategy: Any) -> None:
        vars(optimizer)[name] = strategy

    setattr(_TFOptimizer, name, property(see, note))


def trained_by(optimizer: Any) -> Sequence[Any]:
    """Return the variables that an optimizer was built with; () before it is built."""
    found: Sequence[Any] = getattr(optimizer, "_trainable_variables", ())
    return found


def optimizers_of(model: Any) -> list[Any]:
    """Return the optimizers of a model and of its layers, without duplicates.

    They are attributes, or in an attribute's list, tuple or dictionary. Layers include models that
    were compiled by themselves.
    """

    def within(value: Any) -> Iterable[Any]:
        if isinstance(value, Mapping):
            return value.values()
        return value if isinstance(value, (list, tuple)) else (value,)

    layers = [model, *(one for one in layers_within(model) if one is not model)]
    values = [value for layer in layers for part in vars(layer).values() for value in within(part)]
    values = [getattr(model, "optimizer", None), *values]
    held = [one for one in values if isinstance(one, BaseOptimizer)]
    return list({id(one): one for one in held}.values())


def rate_variable(optimizer: Any) -> Any:
    """Return the variable with an optimizer's learning rate; None if it follows a schedule."""
    rate = vars(getattr(optimizer, "inner_optimizer", optimizer)).get("_learning_rate")
    return rate if isinstance(rate, keras.Variable) else None


def schedule_of(optimizer: Any) -> Any:
    """Return the schedule or the function that gives an optimizer's learning rate, or None."""
    rate = vars(getattr(optimizer, "inner_optimizer", optimizer)).get("_learning_rate")
    return None if isinstance(rate, keras.Variable) else rate


def unknown_to(optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    """Return the variables that an optimizer was not built with. Keras reports them too late."""
    known = optimizer._trainable_variables_indices
    if not known:  # an optimizer that delegates to another, such as LossScaleOptimizer
        return []
    return [one for one in variables if optimizer._var_key(one) not in known]


def is_decayed(optimizer: Any, variable: Any) -> bool:
    """Tell whether an optimizer's weight decay applies to a variable."""
    return bool(optimizer._use_weight_decay(variable))


# Data adapters and callbacks.

arrays_of = attrgetter("_inputs")
"""The arrays of an ArrayDataAdapter, after Keras's conversion."""
num_examples = attrgetter("_num_samples")
"""The number of rows of an ArrayDataAdapter's arrays."""
shuffle_of = attrgetter("_shuffle")
"""The argument `shuffle` of an ArrayDataAdapter."""
signature_of = attrgetter("_output_signature")
"""The specification of a PyDataset's batches; None if batches must be read to find it."""
is_to_profile = attrgetter("_should_trace")
"""Whether a TensorBoard callback will profile some batches."""


def set_signature(adapter: PyDatasetAdapter, signature: Any) -> None:
    """Set the specification of an adapter's batches, so that it reads no batches to find it."""
    adapter._output_signature = signature


def dataset_of(adapter: Any) -> Any:
    """Return the tf.data.Dataset of an adapter.

    Keras reads a few batches of a torch DataLoader to inspect them, and forgets them. Here they are
    noted for `first_batches`, because each reading draws another order.
    """
    loader = torch_loader_of(adapter)
    if loader is None or first_batches(adapter) is not None:
        return adapter.get_tf_dataset()
    adapter._first_batches = [*islice(loader, NUM_BATCHES_FOR_TENSOR_SPEC)]
    adapter._dataloader = adapter._first_batches
    try:
        return adapter.get_tf_dataset()
    finally:
        adapter._dataloader = loader


def torch_loader_of(adapter: Any) -> Any:
    """Return the torch DataLoader of an adapter; None if it has other data."""
    return adapter._dataloader if isinstance(adapter, TorchDataLoaderAdapter) else None


def is_in_order(loader: Any) -> bool:
    """Tell whether a torch DataLoader reads its examples in order; otherwise each pass draws."""
    return type(getattr(loader, "sampler", None)).__name__ == "SequentialSampler"


def first_batches(adapter: Any) -> Any:
    """Return the batches that were read from a generator or a loader to inspect them, or None.

    A Grain data set is read here, because each reading begins anew and gives the same.
    """
    if isinstance(adapter, GrainDatasetAdapter):
        return [*islice(adapter._dataset, 1)]
    return getattr(adapter, "_first_batches", None)

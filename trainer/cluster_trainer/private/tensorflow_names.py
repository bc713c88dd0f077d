"""TensorFlow's private names, as read in TensorFlow 2.21.0, each with the reason for its use.

Public names are not here: other modules import `tensorflow`.
"""

from collections.abc import Mapping, Sequence
from functools import wraps
from operator import attrgetter, methodcaller
from typing import Any

import tensorflow as tf

# Convert a function as `tf.function` does.
from tensorflow.python.autograph.core import ag_ctx as _ag_ctx
from tensorflow.python.data.ops.dataset_ops import _VariantDataset

# Turn a batch into tensors, so that an iterator can yield it again.
from tensorflow.python.data.util.structure import get_flat_tensor_shapes, to_tensor_list

# The implementation of a MultiWorkerMirroredStrategy, to which ours passes its devices.
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from tensorflow.python.distribute.distribute_lib import StrategyBase as _StrategyBase

# The default strategy.
from tensorflow.python.distribute.distribute_lib import (
    _DefaultDistributionStrategy as DefaultStrategy,
)

# Makes a variable with a copy for each replica from copies that exist already.
from tensorflow.python.distribute.distribute_utils import (
    VARIABLE_CLASS_MAPPING as _VARIABLE_CLASSES,
)
from tensorflow.python.distribute.distribute_utils import (
    VARIABLE_POLICY_MAPPING as _VARIABLE_POLICIES,
)
from tensorflow.python.distribute.distribute_utils import (
    create_mirrored_variable as _create_mirrored_variable,
)

# Make one value per replica of a process, also within a function.
from tensorflow.python.distribute.distribute_utils import regroup as _regroup

# Recognise a variable with a copy on each replica, and a batch with a part for each.
from tensorflow.python.distribute.mirrored_strategy import MirroredExtended as _MirroredExtended
from tensorflow.python.distribute.values import DistributedVariable, PerReplicaSpec
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import autograph_util as _autograph_util

# Makes the part of the key of a function's trace that does not come from the arguments.
from tensorflow.python.eager.polymorphic_function import function_context as _function_context

# Tells whether a kind of operation has side effects. A function's graph names only the kinds.
from tensorflow.python.framework import op_def_registry as _kinds_of_operations
from tensorflow.python.framework import random_seed as _random_seed

# Tells which variables an operation reads and writes.
from tensorflow.python.framework.auto_control_deps_utils import get_read_write_resource_inputs

# The graph of a function, and that of a branch or a loop, or of its gradient.
from tensorflow.python.framework.func_graph import FuncGraph as _FuncGraph
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable as _BaseVariable
from tensorflow.python.ops.resource_variable_ops import ResourceVariable as _ResourceVariable

from cluster_trainer.private.replaceable import Replaceable

# Replaced names; engine/install.py shows the replacements.

NUM_REPLICAS_IN_SYNC = Replaceable(_StrategyBase, "num_replicas_in_sync")
ASSIGN = Replaceable(_BaseVariable, "assign")
ASSIGN_OF_RESOURCE = Replaceable(_ResourceVariable, "assign")  # TensorFlow gives this class its own
ASSIGN_ADD = Replaceable(_BaseVariable, "assign_add")
ASSIGN_SUB = Replaceable(_BaseVariable, "assign_sub")
ASSIGN_ADD_OF_RESOURCE = Replaceable(_ResourceVariable, "assign_add")
ASSIGN_SUB_OF_RESOURCE = Replaceable(_ResourceVariable, "assign_sub")
ASSIGNMENTS = (
    *(ASSIGN, ASSIGN_ADD, ASSIGN_SUB),
    *(ASSIGN_OF_RESOURCE, ASSIGN_ADD_OF_RESOURCE, ASSIGN_SUB_OF_RESOURCE),
)
INITIALIZE_STRATEGY = Replaceable(_StrategyBase, "__init__")
GET_SEED = Replaceable(_random_seed, "get_seed")
CROSS_DEVICE_OPS_OF_MIRRORED = Replaceable(_MirroredExtended, "_get_cross_device_ops")
CROSS_DEVICE_OPS = Replaceable(CollectiveAllReduceExtended, "_get_cross_device_ops")
MAKE_FUNCTION_CONTEXT = Replaceable(_function_context, "make_function_context")

# The classes of tf.data's steps, by name: TensorFlow exports none of them.

CACHES = ("CacheDataset", "_CacheDataset")
ZIP, RANDOM, OPTIONS = "_ZipDataset", "_RandomDataset", "_OptionsDataset"
PREFETCH, REPEAT = "_PrefetchDataset", "_RepeatDataset"
SKIP, TAKE = "_SkipDataset", "_TakeDataset"
MAPS = ("_MapDataset", "_ParallelMapDataset")
BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
DIRECTED_INTERLEAVE = "_DirectedInterleaveDataset"
OPAQUE = ("_VariantDataset",)
"""Steps whose inputs cannot be determined."""
BATCHING = (*BATCHES, "_PaddedBatchDataset", "_RebatchDataset")
OF_SEVERAL_ITERATORS = (REPEAT, "_ConcatenateDataset", *CACHES)
"""Steps that restart their inputs within one iterator, or cache them."""
AS_THEY_ARE = (
    *(PREFETCH, REPEAT, TAKE, SKIP, OPTIONS, "_ShuffleDataset"),
    *("_AssertCardinalityDataset", "_ShardDataset", *CACHES),
)
"""Steps that pass their input's elements on unchanged."""


# The process.

global_seed = _random_seed.context.global_seed
"""Returns the seed of `tf.random.set_seed`; None: it was not called."""
next_operation_seed = _random_seed.context.internal_operation_seed
"""Returns the next seed that is derived from the global one, and advances the sequence."""


def operation_seeds() -> Any:
    """Return the generator of operations' seeds, to restore it; None if there is none yet."""
    return getattr(_context.context(), "_rng", None)


def has_begun() -> bool:
    """Tell whether TensorFlow is initialised in this process, or was before the process forked."""
    return getattr(_context.context_safe(), "_context_handle", None) is not None


def has_cluster() -> bool:
    """Tell whether this process is in TensorFlow's cluster (MultiWorkerMirroredStrategy)."""
    return _context.context()._collective_ops_server_def is not None


# Strategies, and the values that they distribute.

copy_here = methodcaller("_get")
"""Returns the calling replica's copy of a DistributedVariable."""


def replicas_in_sync(strategy: tf.distribute.Strategy) -> int:
    """Return a strategy's number of replicas. The public property is 1 within a step."""
    return int(strategy.extended._num_replicas_in_sync)


def worker_number(strategy: tf.distribute.Strategy) -> int:
    """Return the index of the worker on which a strategy runs; 0 without a cluster."""
    return int(getattr(strategy.extended, "_id_in_cluster", 0))


class OfferedStrategy(tf.distribute.MirroredStrategy):
    """A MirroredStrategy beside which a script can have others in the same process.

    Their groups of replicas need different keys. TensorFlow's own tests set the keys in this way.
    """

    _collective_key_base = 1_000_000


OfferedStrategy.__name__ = tf.distribute.MirroredStrategy.__name__  # in messages and records


def mirrored_variable(strategy: tf.distribute.Strategy, copies: Sequence[tf.Variable]) -> Any:
    """Return a variable of these copies, one for each replica, with the first one's options."""
    first = copies[0]
    none, auto = tf.VariableSynchronization.NONE, tf.VariableSynchronization.AUTO
    return _create_mirrored_variable(
        strategy,
        lambda **_: [*copies],
        _VARIABLE_CLASSES,
        _VARIABLE_POLICIES,
        synchronization=auto if first.synchronization is none else first.synchronization,
        aggregation=first.aggregation,
        trainable=first.trainable,
    )


def copies_of(variable: Any) -> tuple[Any, ...]:
    """Return a variable's copies on this process's replicas, or the variable if it has none."""
    is_one_of_several = isinstance(variable, DistributedVariable)
    return tuple(variable._values) if is_one_of_several else (variable,)


def is_copy(variable: Any) -> bool:
    """Tell whether a variable is a replica's copy of a DistributedVariable.

    TensorFlow notes the container on the handle, or on the variable if a function has made it.
    """
    noted = "_distributed_container"
    return hasattr(variable, noted) or hasattr(variable.handle, noted)


def with_copies(copy: Any) -> Any:
    """Return the DistributedVariable of a replica's copy, or any other variable unchanged."""
    noted = "_distributed_container"
    container = getattr(copy, noted, None) or getattr(copy.handle, noted, None)
    return (container and container()) or copy


def for_each_replica(values: Sequence[Any]) -> Any:
    """Return the values of a process's replicas in the form that a strategy's `run` takes."""
    return _regroup(tuple(values)) if len(values) > 1 else values[0]


def spec_of_first(spec: PerReplicaSpec) -> Any:
    """Return the first replica's value."""
    return spec._value_specs[0]


# Operations, functions, tensors and variables.

_GRADIENTS = "__backward_"

is_stateful = attrgetter("_is_stateful")
"""Whether an operation has side effects, so that it runs even if its result is unused."""
type_spec = attrgetter("_type_spec")
"""The specification of an iterator, which a loop passes on."""
table_as_tensors = methodcaller("_serialize_to_tensors")
"""Returns the keys and values of a lookup table, by name."""


def run_after(operation: tf.Operation, other: tf.Operation) -> None:
    """Make an operation of a graph wait for another."""
    operation._add_control_input(other)


def converted_from(function: Any) -> Any:
    """Return a `tf.function`'s Python function, with the control flow that AutoGraph makes of it.

    Return any other function as it is.
    """
    if not hasattr(function, "python_function"):
        return function
    if not function._autograph:
        return function.python_function
    options = function._experimental_autograph_options
    convert = _autograph_util.py_func_from_autograph(function.python_function, options)

    @wraps(function.python_function)
    def converted(*arguments: Any, **keywords: Any) -> Any:
        with _ag_ctx.ControlStatusCtx(_ag_ctx.Status.ENABLED, options):
            return convert(*arguments, **keywords)

    return converted


def can_ask_at_call(graph: Any) -> bool:
    """Tell whether a graph belongs to a function that is called with `asked_at_call`'s values.

    A gradient's graph does not: TensorFlow calls it with values of the function itself.
    """
    return isinstance(graph, _FuncGraph) and not graph.name.startswith(_GRADIENTS)


def asked_at_call(graph: Any, find: Any, key: Any, spec: tf.TensorSpec) -> tf.Tensor:
    """Return a tensor of a function's graph that has the result of `find` at each call.

    TensorFlow itself would call `find` only when a function is called eagerly.
    """
    captures = graph.function_captures
    if key not in captures.by_ref_internal:
        graph.capture_call_time_value(find, spec, key)
        found = captures.by_ref_external[key]

        def asked() -> list[tf.Tensor]:
            return [tf.cast(tf.convert_to_tensor(find()), spec.dtype)]

        asked.output_spec = found.output_spec  # type: ignore[attr-defined]
        captures.by_ref_external[key] = asked
    return captures.by_ref_internal[key]


def used_in(graph: Any) -> list[Any]:
    """Return the variables that a graph's operations read or assign, in any order."""
    return [*getattr(graph, "_watched_variables", ())]


def handle_data(resource: Any) -> Any:
    """Return a graph's data about a resource's content; None if there are none."""
    return getattr(resource, "_handle_data", None)


def without_wrapper(container: Any) -> Any:
    """Return the list or dictionary within TensorFlow's wrapper, which records changes."""
    return getattr(container, "__wrapped__", getattr(container, "_storage", container))


def fill_table(table: Any, tensors: Mapping[str, tf.Tensor]) -> None:
    """Give a lookup table the keys and values of another one."""
    table._restore_from_tensors(tensors)


# Steps of tf.data.

inputs_of = methodcaller("_inputs")
"""Returns the datasets that a dataset reads from."""


def count_of(step: Any) -> int:
    """Return the argument of a `take`, `skip` or `repeat`; -1: all elements, or endlessly."""
    return int(step._count)


def single(variant: tf.Tensor, spec: Any) -> tf.data.Dataset:
    """Return a dataset for the output of an operation of tf.data."""
    return _VariantDataset(variant, spec)


def seeds_of(dataset: Any) -> tuple[int, int] | None:
    """Return the two seeds of a step that shuffles or draws; None for other steps."""
    if not hasattr(dataset, "_seed2"):
        return None
    return int(dataset._seed), int(dataset._seed2)


def reshuffles(dataset: Any) -> bool:
    """Tell whether each iterator of a `shuffle` has a different order."""
    return bool(getattr(dataset, "_reshuffle_each_iteration", False))


def draws_anew(dataset: Any) -> bool:
    """Tell whether each iterator of a `Dataset.random` has different numbers."""
    return bool(getattr(dataset, "_rerandomize", False))


def gives_what_is_ready(dataset: Any) -> bool:
    """Tell whether a step was made with `deterministic=False`."""
    return getattr(dataset, "_deterministic", None) == "false"


def batch_size_of(dataset: Any) -> Any:
    """Return the batch size of a step, as a tensor; None if it does not batch."""
    return getattr(dataset, "_batch_size", None)


def drops_remainder(batch: Any) -> bool:
    """Tell whether a `batch` omits a short last batch."""
    return bool(batch._drop_remainder)


def buffer_of(prefetch: Any) -> int:
    """Return the number of elements that a `prefetch` reads ahead; -1: TensorFlow chooses."""
    return int(prefetch._buffer_size)


def parallel_calls_of(step: Any) -> int | None:
    """Return a step's number of parallel calls; -1: TensorFlow chooses; None: one call."""
    number = getattr(step, "_num_parallel_calls", None)
    return None if number is None else int(number)


def options_of_map(step: Any) -> dict[str, Any]:
    """Return the arguments of a `map`, without its function and `deterministic`."""
    return {
        "num_parallel_calls": parallel_calls_of(step),
        "synchronous": getattr(step, "_force_synchronous", False),
        "use_unbounded_threadpool": getattr(step, "_use_unbounded_threadpool", False),
    }


def traced_map(step: Any) -> Any:
    """Return a `map`'s function as traced by TensorFlow: from tensors to a list of tensors."""
    return step._map_func.function


def has_effects(kind: str) -> bool:
    """Tell whether operations of a kind may have side effects or depend on state."""
    definition = _kinds_of_operations.get(kind)
    return definition is None or definition.is_stateful


def functions_of(dataset: Any) -> list[Any]:
    """Return the Python functions that a step was given, such as a map's or a filter's."""
    return [one._func for one in vars(dataset).values() if hasattr(one, "_func")]


def graphs_of(dataset: Any) -> Sequence[Any]:
    """Return the graphs of all functions that a step calls: a map's, a filter's, a reduction's."""
    functions = [getattr(one, "function", None) for one in vars(dataset).values()]
    graphs = [getattr(one, "graph", None) for one in functions]
    return [one for one in graphs if one is not None]


def captured_by(graph: Any) -> Sequence[tf.Tensor]:
    """Return the tensors, and the handles of resources, that a function's graph takes as inputs."""
    return [one for one in graph.external_captures if hasattr(one, "numpy")]


def tensors_of(dataset: Any) -> Sequence[tf.Tensor]:
    """Return the tensors that a dataset was made from; () if it was not made from tensors."""
    found: Sequence[tf.Tensor] = getattr(dataset, "_tensors", ())
    return found
